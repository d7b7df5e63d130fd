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
from dataclasses import dataclass
from typing import Any

import numpy as np

from hetspec.decoding.tree import ROOT
from hetspec.drafting.calibration import CalibrationMap, Factors
from hetspec.rpc.messages import Draft, Walk
from hetspec.v1.drafter_pb2 import DRAFT_SOURCE_LOOKUP, DRAFT_SOURCE_MODEL

EDGES = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.97)
DEPTHS = 6  # deeper nodes count as the last
_BINS = len(EDGES) + 1
_PRIOR = 20.0
_FRESH = 8  # rounds for which a map is good
_LEARNED = (int(DRAFT_SOURCE_LOOKUP), int(DRAFT_SOURCE_MODEL))  # what a grammar forces is certain

AT_THEIR_WORD = CalibrationMap((), ())


class _Cells:
    """Sums over nodes, [rows, bins]."""

    def __init__(self, rows: int) -> None:
        self.expected = np.zeros((rows, _BINS))
        self.accepted = np.zeros((rows, _BINS))

    def add(self, row: int, chance: float, is_accepted: bool) -> None:
        at = row, bisect_right(EDGES, chance)
        self.expected[at] += chance
        self.accepted[at] += is_accepted

    def factors(self) -> Factors:
        """Where rows are depths."""
        whole = _factor(self.accepted.sum(), self.expected.sum(), 1.0)
        of_bins = _factor(self.accepted.sum(axis=0), self.expected.sum(axis=0), whole)
        return tuple(map(tuple, _factor(self.accepted, self.expected, of_bins).tolist()))


def _factor(accepted: Any, expected: Any, before: Any) -> Any:
    """Of one cell or of several."""
    return (accepted + _PRIOR * before) / (expected + _PRIOR)


class CalibrationError:
    """The expected calibration error: how far chances are from what came true, by bin, weighed by nodes."""

    def __init__(self) -> None:
        self._cells = _Cells(1)
        self._nodes = 0

    def add(self, chance: float, is_accepted: bool) -> None:
        self._cells.add(0, chance, is_accepted)
        self._nodes += 1

    @property
    def value(self) -> float:
        return float(abs(self._cells.expected - self._cells.accepted).sum()) / max(1, self._nodes)


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
        self._cells = {source: _Cells(DEPTHS) for source in _LEARNED}
        self.map = AT_THEIR_WORD
        self._rounds = 0

    def learn(self, draft: Draft, seen: Sequence[Outcome]) -> None:
        for one in seen:
            if (cells := self._cells.get(draft.sources[one.node])) is not None:
                cells.add(min(one.depth, DEPTHS) - 1, draft.probabilities[one.node], one.is_accepted)
        self._rounds += bool(seen)
        if seen and self._rounds % _FRESH == 0:
            self.map = CalibrationMap(EDGES, tuple((source, cells.factors()) for source, cells in self._cells.items()))
