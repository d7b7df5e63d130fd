"""So much a minute, in whole nanoseconds: what it says of waiting is exact."""

from __future__ import annotations

import time
from collections.abc import Callable

_MINUTE_NS = 60 * 10**9


class TokenBucket:
    """Full at first, filled evenly at `per_minute`, holding at most that many.

    Spending may overdraw it, for what something takes is known only afterwards; the debt is then waited off, so that in
    the long run no more is spent than flows in.
    """

    def __init__(self, per_minute: int, clock_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self.per_minute = per_minute
        self._clock_ns = clock_ns
        self._filled_ns = clock_ns()
        self._level = per_minute * _MINUTE_NS  # in parts of a token, of which `per_minute` flow in every nanosecond

    @property
    def left(self) -> int:
        """Whole tokens; negative when overdrawn."""
        self._fill()
        return self._level // _MINUTE_NS

    def spend(self, tokens: int) -> None:
        self._fill()
        self._level -= tokens * _MINUTE_NS

    def wait_ns(self, tokens: int) -> int:
        """Until so many are there."""
        self._fill()
        return max(0, -(-(tokens * _MINUTE_NS - self._level) // self.per_minute))

    def _fill(self) -> None:
        now_ns = self._clock_ns()
        self._level += (now_ns - self._filled_ns) * self.per_minute
        self._level = min(self._level, self.per_minute * _MINUTE_NS)
        self._filled_ns = now_ns
