"""From a draft's probabilities, which are over-confident, to chances of acceptance: a factor by where a node stands."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

Factors = tuple[tuple[float, ...], ...]  # [depths, bins]


@dataclass(frozen=True, slots=True)
class CalibrationMap:
    """edges: between bins of probability, ascending; what lies on one belongs above it. factors: by source. What is
    deeper than they tell is as the deepest; a source without any is taken at its word."""

    edges: tuple[float, ...]
    factors: tuple[tuple[int, Factors], ...]

    def __post_init__(self) -> None:
        for source, table in self.factors:
            if not table or any(len(row) != len(self.edges) + 1 for row in table):
                raise ValueError(f"calibration of source {source}: must be a factor for each of {len(self.edges) + 1}")
            if not all(0 <= factor < inf for row in table for factor in row):
                raise ValueError(f"calibration of source {source}: holds a factor that is negative or not finite")

    def chance(self, source: int, depth: int, probability: float) -> float:
        """depth: from 1."""
        return self._each(depth, ((source, probability),))[0]

    def chances(self, depth: int, siblings: Sequence[tuple[int, float]]) -> list[float]:
        """siblings: source and probability of each. One of them at most is accepted: together they have no more than
        certainty."""
        chances = self._each(depth, siblings)
        total = sum(chances)
        return [chance / total for chance in chances] if total > 1 else chances

    def _each(self, depth: int, told: Sequence[tuple[int, float]]) -> list[float]:
        rows = {source: table[min(depth, len(table)) - 1] for source, table in self.factors}
        return [
            min(1.0, each * rows[source][bisect_right(self.edges, each)]) if source in rows else each
            for source, each in told
        ]
