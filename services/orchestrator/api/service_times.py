"""How long until places become free, from what has been seen."""

from __future__ import annotations

from collections import deque

_REMEMBERED = 64


class ServiceTimes:
    """Counts ends, and the time that was spent running between them.

    The mean time of one is all time spent by the number of ends, those that still run included: the maximum likelihood
    for exponential times, of which the estimate needs no more than how many run.
    """

    def __init__(self) -> None:
        self._running = 0
        self._spent_s = 0.0  # by all together
        self._seen = 0.0
        self._spent_at_ends: deque[float] = deque([0.0], maxlen=_REMEMBERED + 1)

    def begin(self, now: float) -> None:
        self._advance(now)
        self._running += 1

    def end(self, now: float) -> None:
        self._advance(now)
        self._running -= 1
        self._spent_at_ends.append(self._spent_s)

    def expected_s(self, ends: int, now: float) -> float:
        """Until so many have ended, if each is followed by another."""
        if self._running == 0:
            return 0.0
        self._advance(now)
        mean_s = (self._spent_s - self._spent_at_ends[0]) / max(1, len(self._spent_at_ends) - 1)
        return ends * mean_s / self._running

    def _advance(self, now: float) -> None:
        self._spent_s += self._running * (now - self._seen)
        self._seen = now
