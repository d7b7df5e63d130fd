"""What passes of a target gave in speculation, and where what they did not give was lost."""

from __future__ import annotations

from dataclasses import dataclass, field

from hetspec.decoding.tree import ROOT
from hetspec.training.speculation.replay import ReplayedRound
from hetspec.v1.drafter_pb2 import DRAFT_SOURCE_LOOKUP, DRAFT_SOURCE_MODEL

SOURCES = {"model": DRAFT_SOURCE_MODEL, "lookup": DRAFT_SOURCE_LOOKUP}


@dataclass(slots=True)
class Count:
    offered: int = 0
    accepted: int = 0

    @property
    def share(self) -> float:
        return self.accepted / max(1, self.offered)


@dataclass(slots=True)
class Passes:
    """Those that read prompts are not counted.

    depths: a level each, from the first, of passes: `offered` where the path above was accepted and nodes hung below
    it, `accepted` where one of them was. sources: of nodes. missed: passes in which nodes hung below the accepted path
    and none of them held the token; beyond_head: those whose token the draft model's head does not know.
    """

    passes: int = 0
    tokens: int = 0
    depths: list[Count] = field(default_factory=list)
    sources: dict[str, Count] = field(default_factory=lambda: {name: Count() for name in SOURCES})
    missed: int = 0
    beyond_head: int = 0

    @property
    def accept_length(self) -> float:
        return self.tokens / max(1, self.passes)

    def add(self, one: ReplayedRound, head_ids: frozenset[int]) -> None:
        """head_ids: that the draft model can propose."""
        missed = one.missed if _is_offered_below(one) else None
        self.passes += 1
        self.tokens += len(one.emitted)
        self.missed += missed is not None
        self.beyond_head += missed is not None and missed not in head_ids
        self._add_depths(len(one.accepted), len(one.accepted) + (missed is not None))
        for name, source in SOURCES.items():
            self.sources[name].offered += one.draft.sources.count(source)
            self.sources[name].accepted += sum(one.draft.sources[node] == source for node in one.accepted)

    def _add_depths(self, accepted: int, offered: int) -> None:
        self.depths += [Count() for _ in range(offered - len(self.depths))]
        for level in range(offered):
            self.depths[level].offered += 1
            self.depths[level].accepted += level < accepted


def _is_offered_below(one: ReplayedRound) -> bool:
    """Whether nodes hang below the accepted path."""
    return (one.accepted[-1] if one.accepted else ROOT) in one.draft.tree.parents
