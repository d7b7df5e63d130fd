"""Which machine the figures are of."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def describe() -> str:
    model = next((line.split(":")[1].strip() for line in _cpuinfo() if line.startswith("model name")), "unknown CPU")
    flags = next((set(line.split(":")[1].split()) for line in _cpuinfo() if line.startswith("flags")), set())
    widest = next((name for name in ("avx512_vnni", "avx512f", "avx2") if name in flags), "no AVX2")
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    cpus = len(os.sched_getaffinity(0))
    system = f"{platform.system()}, Python {platform.python_version()}"
    return f"{model} ({widest}), {cpus} CPUs, {memory_gib:.0f} GiB, {system}"


def _cpuinfo() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text().splitlines() if path.exists() else []
