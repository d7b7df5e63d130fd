"""How fast an emulated world may go: as fast as it can, or not before the wall clock."""

from __future__ import annotations

from collections.abc import Callable


class Unpaced:
    """Emulated time runs as fast as the host computes."""

    name = "emulated"
    forgets = True

    def wait_s(self, at_ns: int) -> float:
        return 0.0

    def lag_ns(self, at_ns: int) -> int:
        return 0

    def wake(self, now_ns: int) -> int:
        """An idle world's time, at the arrival of a session."""
        return now_ns


class Paced:
    """Emulated time never passes wall time times the factor; while nothing happens it follows it."""

    name = "paced"
    forgets = False

    def __init__(self, factor: float, wall_s: Callable[[], float]) -> None:
        self._factor = factor
        self._wall_s = wall_s
        self._begun_s = wall_s()

    def wait_s(self, at_ns: int) -> float:
        """Until an event at this emulated time is due."""
        return max(0.0, -self.lag_ns(at_ns) / 1e9 / self._factor)

    def lag_ns(self, at_ns: int) -> int:
        """How far the world, at this emulated time, is behind; negative: ahead."""
        return int((self._wall_s() - self._begun_s) * self._factor * 1e9) - at_ns

    def wake(self, now_ns: int) -> int:
        return now_ns + max(0, self.lag_ns(now_ns))


Pace = Unpaced | Paced
