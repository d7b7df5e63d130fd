"""What a round of speculation costs by what is drafted in it: what the size of a tree is chosen by.

Costs are nanoseconds where time counts, picojoules where energy does; one round's are all of a kind.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from hetspec.drafting.calibration import CalibrationMap

LAST_STRETCH = 8  # committed tokens at most that a draft's first step reads


@dataclass(frozen=True, slots=True)
class CostCurve:
    """points: (rows, cost), rows ascending from 1; straight between two points. A step is two points a row apart."""

    points: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        rows = [at for at, _ in self.points]
        if rows[:1] != [1] or any(after <= before for before, after in pairwise(rows)):
            raise ValueError(f"cost curve: rows = {rows}, must ascend from 1")
        if (least := min(cost for _, cost in self.points)) < 0:
            raise ValueError(f"cost curve: cost = {least}, must not be negative")

    @classmethod
    def padded(cls, points: Iterable[tuple[int, int]]) -> CostCurve:
        """Of a device that pads rows up to the next of `points`."""
        edges: list[tuple[int, int]] = []
        for rows, cost in points:
            first = edges[-1][0] + 1 if edges else 1
            edges += [(first, cost)] if first == rows else [(first, cost), (rows, cost)]
        return cls(tuple(edges))

    def __call__(self, rows: int) -> float:
        """Raises ValueError outside of what the curve tells."""
        if not 1 <= rows <= self.max_rows:
            raise ValueError(f"rows = {rows}, the curve tells 1 to {self.max_rows}")
        at = bisect_left(self.points, (rows,))
        above, cost = self.points[at]
        if above == rows:
            return cost
        below, cost_below = self.points[at - 1]
        return cost_below + (cost - cost_below) * (rows - below) / (above - below)

    def up_to(self, rows: int) -> list[float]:
        """Of one row, of two, ... Raises ValueError where the curve does not tell of as many."""
        if rows > self.max_rows:
            raise ValueError(f"rows = {rows}, the curve tells 1 to {self.max_rows}")
        at, costs = np.array(self.points, np.float64).T
        told: list[float] = np.interp(np.arange(1, rows + 1), at, costs).tolist()
        return told

    def longer(self, rows: int) -> CostCurve:
        """Up to so many rows: beyond what it tells, each costs what the last of them did."""
        (before, cost_before), (last, cost) = self.points[-2:] if len(self.points) > 1 else (self.points[0],) * 2
        if rows <= last:
            return self
        row = (cost - cost_before) / max(1, last - before)
        return CostCurve((*self.points, (rows, round(cost + row * (rows - last)))))

    @property
    def max_rows(self) -> int:
        return self.points[-1][0]


@dataclass(frozen=True, slots=True)
class DraftCosts:
    """round: of a round, whatever is drafted. verify: of the target's pass, by its rows: the last token's and one a
    node. draft_step: of a step of the draft model, by the rows it feeds. calibration None: probabilities are taken at
    their word.

    What the sampler spends on each token that comes out is left out. Where a round of E tokens costs C + w E, its rate
    E / (C + w E) grows with E / C, and w changes no choice. What it spends in any round belongs to `round`.
    """

    round: int
    verify: CostCurve
    draft_step: CostCurve
    calibration: CalibrationMap | None = None

    def __post_init__(self) -> None:
        if self.verify(1) <= 0:
            raise ValueError(f"verify: a pass of one row costs {self.verify(1)}, must be positive")

    @property
    def plain(self) -> float:
        """Of a token without a draft."""
        return self.round + self.verify(1)
