"""What a policy asks of hardware before it decides: time and energy by rows, at a number of positions attended to."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Curve:
    """points: (rows, value), rows ascending. Between two points the value is the next one's: rows are padded to it."""

    points: tuple[tuple[int, int], ...]

    def __call__(self, rows: int) -> int:
        """Raises ValueError outside of what the curve tells."""
        at = bisect_left(self.points, (rows,))
        if rows < 1 or at == len(self.points):
            raise ValueError(f"rows = {rows}, the curve tells 1 to {self.points[-1][0]}")
        return self.points[at][1]

    @property
    def max_rows(self) -> int:
        return self.points[-1][0]


@dataclass(frozen=True, slots=True)
class CostCurves:
    """kv_len: positions that each row attends to.

    verify: a pass of the target, with what it waits for flash. draft_step: one step of the draft model, all its rows
    through its head; none where lookup alone drafts. walk_row: one hidden row handed over and projected.
    Energy is dynamic; static_uw is the power of the whole platform meanwhile, for whoever reckons with time.
    """

    kv_len: int
    verify_ns: Curve
    verify_pj: Curve
    draft_step_ns: Curve | None
    draft_step_pj: Curve | None
    walk_row_ns: int
    walk_row_pj: int
    static_uw: int


def curves_of(points: Sequence[tuple[int, int, int]]) -> tuple[Curve, Curve]:
    """(rows, ns, pJ) each: the curve of times and that of energies."""
    return Curve(tuple((rows, ns) for rows, ns, _ in points)), Curve(tuple((rows, pj) for rows, _, pj in points))
