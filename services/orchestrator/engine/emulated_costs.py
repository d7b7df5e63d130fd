"""What rounds cost in an emulated world: as its hardware prices them."""

from __future__ import annotations

from hetspec.drafting.costs import DraftCosts
from orchestrator.clock.hardware import Hardware
from orchestrator.policies.costs import CostQuery, costs_of_curves

_KV_STEP = 64  # positions: a round counts as one at the next multiple


class EmulatedCosts:
    """What the flash reads while a draft grows is left out of account: it is a layer or two of all of them."""

    def __init__(self, hardware: Hardware) -> None:
        self._hardware = hardware
        self._known: dict[tuple[object, ...], DraftCosts] = {}

    def costs(self, query: CostQuery) -> DraftCosts | None:
        kv_len = -(-query.kv_len // _KV_STEP) * _KV_STEP
        place = query.objective, kv_len, query.rows, query.step_rows
        if place not in self._known:
            curves = self._hardware.pricing.curves(kv_len, query.rows, query.step_rows)
            self._known[place] = costs_of_curves(curves, query.objective, query.step_rows)
        return self._known[place]
