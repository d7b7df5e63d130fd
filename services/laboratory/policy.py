"""A way of decoding that a study compares with others: what a request says, and what it changes of the hardware."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace

from hetspec.hardware.profile import Described
from orchestrator.policies.drafting_algorithm import Drafting
from orchestrator.policies.mode import Mode, Objective, Part, parts_of

Change = Callable[[Described], Described]


def unchanged(hardware: Described) -> Described:
    return hardware


@dataclass(frozen=True, slots=True)
class Policy:
    """max_nodes, max_depth: of a draft, at most. hardware: what is changed of it; is_seen: whether the policy's cost
    curves tell of the change. shares_edc: its answers learn from those before them; then they are given in order."""

    name: str
    mode: Mode
    max_nodes: int = 1
    max_depth: int = 1
    disabled: frozenset[Part] = frozenset()
    objective: Objective = Objective.LATENCY
    outcomes: int = 1
    drafting: Drafting = Drafting.FIXED
    shares_edc: bool = False
    fits_tvc: bool = False
    hardware: Change = unchanged
    is_seen: bool = True

    @property
    def sees_costs(self) -> bool:
        """Whether what is drafted depends on what it costs, or on when it is done."""
        return bool((parts_of(self.mode) - self.disabled) & {Part.COST_TREE, Part.LOOK_AHEAD})

    @property
    def is_lazy(self) -> bool:
        return Part.LAZY_HEAD not in self.disabled

    def rounds(self, pair: str) -> Hashable:
        """What its rounds depend on: policies of which this is the same draft alike. pair: its hardware and models."""
        seen = (pair, self.hardware if self.is_seen else unchanged, self.objective) if self.sees_costs else ()
        asked = self.max_nodes, self.max_depth, self.outcomes, self.drafting, self.shares_edc, self.fits_tvc
        return self.mode, asked, self.disabled - {Part.LAZY_HEAD}, seen

    def without_rest(self) -> Policy | None:
        """The policy whose rounds are the same as long as its draft never rests."""
        if Part.NO_DRAFT not in self.disabled:
            return None
        return replace(self, disabled=self.disabled - {Part.NO_DRAFT})
