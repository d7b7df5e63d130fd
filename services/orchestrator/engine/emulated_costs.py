"""What rounds cost in an emulated world: as its hardware prices them."""

from __future__ import annotations

from hetspec.drafting.costs import DraftCosts
from orchestrator.clock.hardware import Hardware
from orchestrator.policies.costs import CostQuery, RoundTook, costs_of_curves

_KV_STEP = 64  # positions: a round counts as one at the next multiple


class EmulatedCosts:
    """What the flash reads while a draft grows is left out of account: it is a layer or two of all of them."""

    def __init__(self, hardware: Hardware) -> None:
        self._hardware = hardware
        self._known: dict[tuple[object, ...], DraftCosts | None] = {}

    def costs(self, query: CostQuery) -> DraftCosts | None:
        kv_len = -(-query.kv_len // _KV_STEP) * _KV_STEP
        place = query.objective, kv_len, query.rows, query.step_rows
        if place not in self._known:
            self._known[place] = self._priced(kv_len, query)
        return self._known[place]

    def _priced(self, kv_len: int, query: CostQuery) -> DraftCosts | None:
        """None at the end of what a measured machine's tables tell: whether the round is beyond them shows then."""
        try:
            curves = self._hardware.pricing.curves(kv_len, query.rows, query.step_rows)
        except ValueError:
            return None
        return costs_of_curves(curves, query.objective, query.step_rows)

    def learn(self, took: RoundTook) -> None:
        """Nothing: how long the host takes is no matter."""
