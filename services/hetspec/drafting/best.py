"""The nodes of the highest gain, as many as may be kept."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Iterator


class Best:
    """Best first. Among equals the earlier goes first, so that a parent comes before its child."""

    def __init__(self, capacity: int, min_gain: float) -> None:
        self._capacity = capacity
        self._min_gain = min_gain
        self._ranked: list[tuple[float, int]] = []  # (-gain, node)

    def __iter__(self) -> Iterator[int]:
        return iter([node for _, node in self._ranked])

    @property
    def gains(self) -> list[float]:
        return [-gain for gain, _ in self._ranked]

    def takes(self, gain: float) -> bool:
        """Whether a node added now with that gain would be kept. If not, neither would its child."""
        if len(self._ranked) == self._capacity:
            return self._capacity > 0 and gain > -self._ranked[-1][0]
        return gain >= self._min_gain

    def offer(self, node: int, gain: float) -> None:
        """A node that is newer than all before."""
        if self.takes(gain):
            insort(self._ranked, (-gain, node))
            del self._ranked[self._capacity :]

    def fill(self, gains: Iterable[tuple[int, float]]) -> None:
        """Anew, from these nodes and their gains."""
        likely = [(-gain, node) for node, gain in gains if gain >= self._min_gain]
        self._ranked = sorted(likely)[: self._capacity]
