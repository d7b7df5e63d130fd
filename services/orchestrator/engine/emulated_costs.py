"""What rounds cost in an emulated world: as its hardware prices them."""

from __future__ import annotations

from hetspec.drafting.costs import DraftCosts
from hetspec.hardware.curves import CostCurves
from orchestrator.clock.hardware import Hardware
from orchestrator.policies.costs import CostQuery, RoundTook, costs_of_curves, energy_of_curves
from orchestrator.policies.thrift import EnergyCosts

_KV_STEP = 64  # positions: a round counts as one at the next multiple


class EmulatedCosts:
    """What the flash reads while a draft grows is left out of account: it is a layer or two of all of them."""

    def __init__(self, hardware: Hardware) -> None:
        self._hardware = hardware
        self._curves: dict[tuple[int, int, int], CostCurves | None] = {}
        self._known: dict[tuple[object, ...], DraftCosts] = {}
        self._energy: dict[tuple[int, int, int], EnergyCosts] = {}

    def costs(self, query: CostQuery) -> DraftCosts | None:
        if (curves := self._curves_of(query)) is None:
            return None
        place = query.objective, *_place(query)
        if place not in self._known:
            self._known[place] = costs_of_curves(curves, query.objective, query.step_rows)
        return self._known[place]

    def energy(self, query: CostQuery) -> EnergyCosts | None:
        if (curves := self._curves_of(query)) is None:
            return None
        if (place := _place(query)) not in self._energy:
            check_pj = self._hardware.pricing.check_pj(curves.kv_len, query.rows)
            self._energy[place] = energy_of_curves(curves, check_pj, query.step_rows)
        return self._energy[place]

    def learn(self, took: RoundTook) -> None:
        """Nothing: how long the host takes is no matter."""

    def _curves_of(self, query: CostQuery) -> CostCurves | None:
        """None at the end of what a measured machine's tables tell: whether the round is beyond them shows then."""
        if (place := _place(query)) not in self._curves:
            try:
                self._curves[place] = self._hardware.pricing.curves(*place)
            except ValueError:
                self._curves[place] = None
        return self._curves[place]


def _place(query: CostQuery) -> tuple[int, int, int]:
    kv_len = -(-query.kv_len // _KV_STEP) * _KV_STEP
    return kv_len, query.rows, query.step_rows
