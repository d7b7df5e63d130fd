"""Static power over time, in whole picojoules that add up."""

from __future__ import annotations


def static_pj(power_uw: int, start_ns: int, end_ns: int) -> int:
    """Drawn from start to end. What adjoining stretches draw sums to what the whole does, whatever is rounded.

    Raises ValueError if it ends before it starts.
    """
    if end_ns < start_ns:
        raise ValueError(f"end_ns = {end_ns}, must be at least start_ns = {start_ns}")
    return power_uw * end_ns // 1000 - power_uw * start_ns // 1000
