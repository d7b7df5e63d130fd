"""Whether a pass is to let drafted nodes leave half way: where that is expected to save more than it loses.

It saves what the rows that leave would have cost in the layers that are left. It loses a token for every accepted node
that leaves, and every token behind it: each is paid for again, at what a token of this round costs.
"""

from __future__ import annotations

from dataclasses import dataclass

from hetspec.drafting.costs import CostCurve

_SHARE, _AS_IF_NODES = 0.2, 64  # of nodes that leave, before any did; and of how many nodes that was learned
_AS_IF_ACCEPTED = 460  # accepted nodes that `recall` was learned of: so many tell one of 99.5 % (docs/early-exit.md)


@dataclass(frozen=True, slots=True)
class Exit:
    """Where a verifier lets nodes leave. left: the share of its layers behind that. recall: of accepted nodes, those
    that stay, as its predictor was fitted."""

    left: float
    recall: float


@dataclass(frozen=True, slots=True)
class Pass:
    """That may be asked to: of the last token's row and so many nodes. accepted: of these, expected. cost: of the whole
    round."""

    nodes: int
    accepted: float
    verify: CostCurve
    cost: float


class EarlyExits:
    """Learns from a session's passes, and begins with what was true elsewhere."""

    __slots__ = ("_dropped", "_kept", "_nodes", "_wrong")

    def __init__(self) -> None:
        self._nodes = self._dropped = 0
        self._kept = self._wrong = 0  # accepted nodes that stayed, and that left

    def pays(self, asked: Pass, at: Exit) -> bool:
        return self.saved(asked, at) > self.lost(asked, at)

    def saved(self, asked: Pass, at: Exit) -> float:
        rows = min(1 + asked.nodes, asked.verify.max_rows)
        leave = round(asked.nodes * (self._dropped + _SHARE * _AS_IF_NODES) / (self._nodes + _AS_IF_NODES))
        return at.left * (asked.verify(rows) - asked.verify(max(1, rows - leave)))

    def lost(self, asked: Pass, at: Exit) -> float:
        leave = (self._wrong + (1 - at.recall) * _AS_IF_ACCEPTED) / (self._kept + self._wrong + _AS_IF_ACCEPTED)
        return leave * asked.accepted * asked.cost / (1 + asked.accepted)

    def passed(self, nodes: int, dropped: int) -> None:
        """A pass that was asked to."""
        self._nodes += nodes
        self._dropped += dropped

    def judged(self, accepted: int, is_wrong: bool) -> None:
        """How its round ended. is_wrong: the token that ended it was drafted there, and had left."""
        self._kept += accepted
        self._wrong += is_wrong
