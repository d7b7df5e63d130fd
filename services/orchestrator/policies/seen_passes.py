"""A unit's cost curve, corrected by the passes that it has run since it measured itself.

The unit measured while others loaded beside it, in passes that follow each other; between messages, with caches that
others have filled, they take longer. How much longer is not the same for few rows as for many: each point is corrected
by the passes of about as many rows, and where there were none, by the nearest there were.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from hetspec.drafting.costs import CostCurve

KEPT = 64  # passes that are remembered of a unit, the latest
_NEAR = 0.25  # octaves: a pass of so many more or fewer rows than a point has half the say of one of as many


class SeenPass(NamedTuple):
    """items: that shared it."""

    rows: int
    items: int
    compute_ns: int


def corrected(curve: CostCurve, passes: Iterable[SeenPass]) -> CostCurve:
    """Each point times the weighted median of what passes took over what the curve told of them: one that something
    held up does not move it. More rows are taken to cost no less. Passes of more rows than it tells are left out."""
    points = np.array(curve.points, np.float64)
    seen = np.array([(each.rows, each.compute_ns) for each in passes], np.float64).reshape(-1, 2)
    seen = seen[seen[:, 0] <= curve.max_rows]
    if not len(seen):
        return curve
    ratios = seen[:, 1] / np.interp(seen[:, 0], *points.T)
    order = np.argsort(ratios)
    octaves = np.log2(seen[order, 0] / points[:, :1])  # [points, passes]
    before = np.cumsum(1 / (1 + (octaves / _NEAR) ** 2), axis=1)
    medians = ratios[order][(before < before[:, -1:] / 2).sum(axis=1)]
    costs = np.maximum.accumulate(np.rint(medians * points[:, 1])).astype(np.int64).tolist()
    return CostCurve(tuple(zip((rows for rows, _ in curve.points), costs, strict=True)))
