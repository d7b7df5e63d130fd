"""Whether a machine did nothing else while it was measured. Three signs, each of which a calm machine lacks: tasks that
are alike differ, more rows take far less time than fewer, and something waited for a processor."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from itertools import combinations
from pathlib import Path
from statistics import median

from calibration.errors import CalibrationError
from calibration.plan import OFTEN
from calibration.sample import Sample
from calibration.tables import mean_kv
from hetspec.hardware.measured import KvTable, RowsTable
from hetspec.hardware.work import DraftWork, VerifyWork, WalkWork

MOST_SPREAD = 0.15
MOST_FALL = 1.5  # kernels take four, two or one row at a time: three rows may cost a little more than four
MOST_WAITING = 0.25
_ALIKE_KV = 256  # positions
_PRESSURE = Path("/proc/pressure/cpu")


class Waiting:
    """How long anything on this machine waited for a processor: Linux's pressure stall information."""

    def __init__(self, pressure: Path = _PRESSURE) -> None:
        self._pressure = pressure
        self._start_us, self._start_s = self._waited_us(), time.monotonic()

    def share(self) -> float:
        """Of the time since. 0 where the system does not tell."""
        now_us, taken_us = self._waited_us(), (time.monotonic() - self._start_s) * 1e6
        return 0.0 if now_us is None or self._start_us is None else (now_us - self._start_us) / taken_us

    def _waited_us(self) -> int | None:
        try:
            return int(self._pressure.read_text("ascii").splitlines()[0].rpartition("total=")[2])
        except (OSError, ValueError, IndexError):
            return None


def check_waiting(share: float) -> None:
    """Raises CalibrationError."""
    if share > MOST_WAITING:
        raise _busy(f"something waited for a processor {share:.0%} of the time, must be {MOST_WAITING:.0%} at most")


def check_alike(samples: Iterable[Sample]) -> None:
    """Passes, drafts and walks, each for themselves. Raises CalibrationError."""
    for name, kinds in _kinds(samples).items():
        if (found := _spread(kinds.values())) > MOST_SPREAD:
            raise _busy(f"{name} of one shape differ by {found:.0%}, must differ by {MOST_SPREAD:.0%} at most")


def check_rising(tables: Mapping[str, KvTable | RowsTable | None]) -> None:
    """tables: by what they are of. Raises CalibrationError."""
    for name, table in tables.items():
        columns = zip(*table.ms, strict=True) if isinstance(table, KvTable) else [table.ms] if table else []
        for column in columns:
            for (few, slow), (many, fast) in combinations(zip(table.rows if table else (), column, strict=True), 2):
                if slow > MOST_FALL * fast:
                    raise _busy(f"{name} of {few} rows took {slow:.2f} ms, of {many} rows {fast:.2f} ms")


def _kinds(samples: Iterable[Sample]) -> dict[str, dict[Hashable, list[int]]]:
    """Times of tasks that are alike, by what they are."""
    found: dict[str, dict[Hashable, list[int]]] = defaultdict(lambda: defaultdict(list))
    for sample in samples:
        match sample.work:
            case VerifyWork(items, rows):
                found["passes"][rows, mean_kv(items) // _ALIKE_KV].append(sample.ns)
            case DraftWork(items, rows):
                found["drafts"][rows, mean_kv(items) // _ALIKE_KV].append(sample.ns)
            case WalkWork(_, rows, lazy):
                found["walks"][rows, lazy].append(sample.ns)
    return found


def _spread(kinds: Iterable[list[int]]) -> float:
    """The median of tasks' distances from the median of their kind, relative to that; of half of all kinds less. Of
    kinds that were measured often enough to tell."""
    often = [times for times in kinds if len(times) >= OFTEN]
    return median([median(abs(ns / median(times) - 1) for ns in times) for times in often] or [0.0])


def _busy(why: str) -> CalibrationError:
    return CalibrationError(f"something else keeps this machine busy: {why}")
