"""How many threads compute may use: what the control group grants, not what the machine has."""

from __future__ import annotations

import math
import os
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")


def default_threads(cgroup: Path = _CGROUP) -> int:
    """The control group's CPU quota, rounded up, but no more than the CPUs this process may run on.

    Without a quota the CPUs are shared with other units, two of which may compute at once: half of them. At least 1.
    """
    allowed = len(os.sched_getaffinity(0))
    quota = _quota_v2(cgroup) or _quota_v1(cgroup)
    return max(1, min(allowed, math.ceil(quota)) if quota else allowed // 2)


def _quota_v2(cgroup: Path) -> float | None:
    quota_us, _, period_us = _read(cgroup / "cpu.max").partition(" ")
    return int(quota_us) / int(period_us) if quota_us.isdecimal() and period_us.isdecimal() else None


def _quota_v1(cgroup: Path) -> float | None:
    quota_us = _read(cgroup / "cpu" / "cpu.cfs_quota_us")
    period_us = _read(cgroup / "cpu" / "cpu.cfs_period_us")
    # -1 means no quota
    return int(quota_us) / int(period_us) if quota_us.isdecimal() and period_us.isdecimal() else None


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
