"""How often what a draft believes comes true, learned from a session's rounds.

A node's outcome is known where its parent was accepted: it holds the token that follows there, or it does not. Cells
are kept by source, depth and bin of probability. What a cell makes of a probability is a factor, accepted nodes over
expected ones, so that within a bin likelier stays likelier. Few counts say little: a source's factor begins as if
`_PRIOR` nodes had been accepted of as many expected ones, a bin's as its source's factor has it, and a depth's as its
bin's. From bin to bin chances need not rise: what was counted is believed as it is.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from hetspec.decoding.tree import ROOT
from hetspec.drafting.calibration import CalibrationMap, Factors
from hetspec.rpc.messages import Draft, Walk
from hetspec.v1.drafter_pb2 import DRAFT_SOURCE_LOOKUP, DRAFT_SOURCE_MODEL

EDGES = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.97)
DEPTHS = 6  # deeper nodes count as the last
_BINS = len(EDGES) + 1
_PRIOR = 2.0
_LEARNED = (int(DRAFT_SOURCE_LOOKUP), int(DRAFT_SOURCE_MODEL))  # what a grammar forces is certain

AT_THEIR_WORD = CalibrationMap((), ())


@dataclass(slots=True)
class _Cell:
    expected: float = 0.0
    accepted: int = 0

    def add(self, probability: float, is_accepted: bool) -> None:
        self.expected += probability
        self.accepted += is_accepted

    def factor(self, before: float) -> float:
        return (self.accepted + _PRIOR * before) / (self.expected + _PRIOR)


class _Cells:
    """Of one source: of all nodes, of each bin, and of each bin at each depth."""

    def __init__(self) -> None:
        self._all = _Cell()
        self._bins = [_Cell() for _ in range(_BINS)]
        self._depths = [[_Cell() for _ in range(_BINS)] for _ in range(DEPTHS)]

    def add(self, depth: int, probability: float, is_accepted: bool) -> None:
        at = bisect_right(EDGES, probability)
        for cell in (self._all, self._bins[at], self._depths[min(depth, DEPTHS) - 1][at]):
            cell.add(probability, is_accepted)

    def factors(self) -> Factors:
        whole = self._all.factor(1.0)
        of_bins = [cell.factor(whole) for cell in self._bins]
        return tuple(tuple(cell.factor(of_bins[at]) for at, cell in enumerate(row)) for row in self._depths)


@dataclass(slots=True)
class CalibrationError:
    """The expected calibration error: how far chances are from what came true, by bin, weighed by nodes."""

    cells: list[_Cell] = field(default_factory=lambda: [_Cell() for _ in range(_BINS)])
    nodes: int = 0

    def add(self, chance: float, is_accepted: bool) -> None:
        self.cells[bisect_right(EDGES, chance)].add(chance, is_accepted)
        self.nodes += 1

    @property
    def value(self) -> float:
        return sum(abs(cell.expected - cell.accepted) for cell in self.cells) / self.nodes if self.nodes else 0.0


@dataclass(frozen=True, slots=True)
class Outcome:
    node: int
    depth: int
    is_accepted: bool


def outcomes(draft: Draft, walk: Walk) -> list[Outcome]:
    """Of the nodes whose parent was accepted. A node that was dropped on the way was right all the same where it held
    the token that followed."""
    found: list[Outcome] = []
    parents = [ROOT, *walk.accepted]
    for depth, (token, parent) in enumerate(zip(walk.tokens, parents, strict=False), 1):
        found += [
            Outcome(node, depth, draft.tree.tokens[node] == token)
            for node, above in enumerate(draft.tree.parents)
            if above == parent
        ]
    return found


class Calibration:
    """Begins with every probability at its word."""

    def __init__(self) -> None:
        self._cells = {source: _Cells() for source in _LEARNED}
        self.map = AT_THEIR_WORD

    def learn(self, draft: Draft, seen: Sequence[Outcome]) -> None:
        for one in seen:
            if (cells := self._cells.get(draft.sources[one.node])) is not None:
                cells.add(one.depth, draft.probabilities[one.node], one.is_accepted)
        if seen:
            self.map = CalibrationMap(EDGES, tuple((source, cells.factors()) for source, cells in self._cells.items()))
