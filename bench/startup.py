"""From nothing to the first answer: five processes, with and without what earlier starts have left on disk."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any

from bench.system import running

REPEATS = 3
CASES = ("kernels compiled, weights converted", "kernels compiled", "neither")


def measure(report: Any = print) -> dict[str, float]:
    """Seconds by case, medians; cases take turns."""
    seen: dict[str, list[float]] = {case: [] for case in CASES}
    with tempfile.TemporaryDirectory() as kept:
        _start(kept)
        for repeat in range(REPEATS):
            seen[CASES[0]].append(_start(kept))
            with tempfile.TemporaryDirectory() as fresh:
                seen[CASES[1]].append(_start(fresh))
            with tempfile.TemporaryDirectory() as fresh, _kernels_in(fresh):
                seen[CASES[2]].append(_start(fresh))
            report(f"startup: repeat {repeat + 1} of {REPEATS}")
    return {case: median(times) for case, times in seen.items()}


def _start(cache_dir: str) -> float:
    start = time.perf_counter()
    with running({"HETSPEC_THREADS": "2", "HETSPEC_CACHE_DIR": cache_dir}) as system:
        system.complete("One, two,", 1)
        return time.perf_counter() - start


@contextmanager
def _kernels_in(folder: str) -> Iterator[None]:
    before = os.environ.get("XDG_CACHE_HOME")
    os.environ["XDG_CACHE_HOME"] = folder
    try:
        yield
    finally:
        del os.environ["XDG_CACHE_HOME"]
        if before is not None:
            os.environ["XDG_CACHE_HOME"] = before


def table(seconds: dict[str, float]) -> str:
    lines = ["| on disk already | to the first answer (s) |", "|---|---|"]
    return "\n".join([*lines, *(f"| {case} | {value:.1f} |" for case, value in seconds.items())])
