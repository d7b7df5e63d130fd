"""From samples to tables: by rows as they were measured, along positions attended to a straight line."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median

from calibration.sample import Sample
from hetspec.hardware.measured import KvTable, RowsTable
from hetspec.hardware.work import DraftWork, ItemRows, VerifyWork, WalkWork

_NS_PER_MS = 10**6
_DIGITS = 4  # of milliseconds
_APART = 0.25  # of the whole range, two points at least that tell of a slope


@dataclass(frozen=True, slots=True)
class Point:
    """A pass or a step. kv: positions that a row attends to, on average."""

    rows: int
    kv: float
    ns: float


def verify_points(samples: Iterable[Sample]) -> list[Point]:
    found = ((sample.work, sample.ns) for sample in samples)
    return [Point(w.rows_by_layer[0], mean_kv(w.items), ns) for w, ns in found if isinstance(w, VerifyWork)]


def read_points(samples: Iterable[Sample]) -> list[Point]:
    """Of drafts that end with what they read. One of more tokens than a step takes reads the last of them by itself:
    what that takes is known from drafts that read nothing else."""
    works = [(sample.work, sample.ns) for sample in samples if isinstance(sample.work, DraftWork)]
    reads = [(w, ns) for w, ns in works if w.head_rows == 1]
    points = [Point(w.step_rows[0], mean_kv(w.items), ns) for w, ns in reads if len(w.step_rows) == 1]
    alone_ns = median(point.ns for point in points if point.rows == 1)
    long = [(w, ns) for w, ns in reads if len(w.step_rows) == 2]
    return points + [Point(w.step_rows[0], mean_kv(w.items), max(1.0, ns - alone_ns)) for w, ns in long]


def step_points(samples: Iterable[Sample], read: KvTable) -> list[Point]:
    """Of drafts of several steps of the same rows: what is left when the first, which reads, is taken off."""
    points = []
    for sample in samples:
        work = sample.work
        if isinstance(work, DraftWork) and work.head_rows > 1:
            kv, (first, *steps) = mean_kv(work.items), work.step_rows
            left_ns = sample.ns - read.ns(first, max(1, min(round(kv), read.kv[-1])))
            points.append(Point(steps[0], kv, max(1.0, left_ns / len(steps))))
    return points


def head_table(samples: Iterable[Sample]) -> RowsTable:
    """A path of one row is like a tree of one."""
    times: dict[int, list[float]] = defaultdict(list)
    for sample in samples:
        if isinstance(sample.work, WalkWork) and (not sample.work.lazy or sample.work.head_rows == 1):
            times[sample.work.head_rows].append(sample.ns)
    rows = sorted(times)
    return RowsTable(rows=rows, ms=[_ms(median(times[each])) for each in rows])


def kv_table(points: Sequence[Point]) -> KvTable:
    """Between one position and the most that was measured."""
    groups: Mapping[int, list[Point]] = defaultdict(list)
    for point in points:
        groups[point.rows].append(point)
    rows, kv = sorted(groups), sorted({1, round(max(point.kv for point in points))})
    lines = [_line(groups[each], kv[-1]) for each in rows]
    return KvTable(rows=rows, kv=kv, ms=[[_ms(start + slope * at) for at in kv] for start, slope in lines])


def _line(points: Sequence[Point], range_kv: int) -> tuple[float, float]:
    """At no positions, and for each: Theil and Sen's line, which a few disturbed points do not move. It never falls."""
    pairs = [(a, b) for a, b in combinations(points, 2) if abs(a.kv - b.kv) >= _APART * range_kv]
    slope = max(0.0, median((b.ns - a.ns) / (b.kv - a.kv) for a, b in pairs)) if pairs else 0.0
    return max(1.0, median(point.ns - slope * point.kv for point in points)), slope


def mean_kv(items: Sequence[ItemRows]) -> float:
    """Positions that a row attends to."""
    lengths = [length for item in items for length in item.kv_len]
    return sum(lengths) / len(lengths)


def _ms(ns: float) -> float:
    return max(round(ns / _NS_PER_MS, _DIGITS), 10.0**-_DIGITS)
