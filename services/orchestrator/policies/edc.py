"""Entropy-history-aware drafting control (EDC; AHASD, arXiv 2604.25326): whether to draft one batch more ahead of
verification.

Two-level prediction, as of branches in a processor: what the last batches' entropies were, and how many batches are
ahead, names a counter; the counter has learned whether batches drafted in such a situation were accepted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from math import isfinite

LEVELS = 8  # equal intervals of [0, max_entropy]: 3 bits
HISTORY = 8  # batches; the index holds the mean of the newer half and of the older half
MOST_AHEAD = 7  # of the leading length register, 3 bits
COUNTERS = LEVELS**3
COUNTER_MAX = 3  # 2 bits, of which the highest says: likely accepted
_GOES_ON = 2  # weakly so, where nothing is known
_HALF = HISTORY // 2


class EdcTables:
    """The pattern history table (PHT): of one session, or of all of a server, which then learn from each other."""

    __slots__ = ("_counters",)

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self._counters = [_GOES_ON] * COUNTERS

    def goes_on(self, index: int) -> bool:
        return self._counters[index] >= _GOES_ON

    def learn(self, index: int, accepted_in_full: bool) -> None:
        step = 1 if accepted_in_full else -1
        self._counters[index] = min(COUNTER_MAX, max(0, self._counters[index] + step))

    @property
    def counters(self) -> tuple[int, ...]:
        return tuple(self._counters)


@dataclass(frozen=True, slots=True)
class EdcSnapshot:
    """leht, lceht: levels, the newest first. ahead: the leading length register. index: of the counter that is asked
    now. verified: batches whose outcome is known; foretold: those of them that their counter was right about."""

    max_entropy: float
    leht: tuple[int, ...]
    lceht: tuple[int, ...]
    ahead: int
    index: int
    may_look_ahead: bool
    verified: int
    foretold: int
    counters: tuple[int, ...]


class Edc:
    """Of one session. Entropies are means over a batch, in nats."""

    def __init__(self, tables: EdcTables, max_entropy: float) -> None:
        """Raises ValueError unless max_entropy is positive; means above it count as the highest level."""
        if not (isfinite(max_entropy) and max_entropy > 0):
            raise ValueError(f"max_entropy = {max_entropy}, must be positive")
        self._tables = tables
        self._max_entropy = max_entropy
        self._drafted = _levels([0] * HISTORY)  # LEHT
        self._committed = _levels([0] * HISTORY)  # LCEHT
        self._ahead = 0  # LLR
        self._verified = self._foretold = 0

    def drafted(self, mean_entropy: float) -> int:
        """A batch is ready for verification. The index of the counter that foretells it, to be told to `verified`."""
        self._drafted.appendleft(self._level(mean_entropy))
        self._ahead = min(self._ahead + 1, MOST_AHEAD)
        return self._index()

    def may_look_ahead(self) -> bool:
        """Whether to draft on from what is drafted. With nothing ahead always: the target would have nothing to do."""
        return self._ahead == 0 or self._tables.goes_on(self._index())

    def verified(self, index: int, mean_entropy: float, accepted_in_full: bool) -> None:
        """The oldest batch ahead has its verdict. index, mean_entropy: what `drafted` returned and was told for it."""
        self._verified += 1
        self._foretold += self._tables.goes_on(index) == accepted_in_full
        self._tables.learn(index, accepted_in_full)
        self._ahead = max(0, self._ahead - 1)
        if accepted_in_full:
            self._committed.appendleft(self._level(mean_entropy))

    def look_ahead_dropped(self, but_the_first: bool = False) -> None:
        """Batches ahead are given up, without a verdict of their own: after a rejection, or where the bonus token is
        not what they begin with. but_the_first: the oldest of them is still being verified, though a check has told how
        that will end."""
        self._ahead = int(but_the_first)
        self._drafted = _levels(self._committed)

    def snapshot(self) -> EdcSnapshot:
        return EdcSnapshot(
            self._max_entropy,
            tuple(self._drafted),
            tuple(self._committed),
            self._ahead,
            self._index(),
            self.may_look_ahead(),
            self._verified,
            self._foretold,
            self._tables.counters,
        )

    def _level(self, mean_entropy: float) -> int:
        if not (isfinite(mean_entropy) and mean_entropy >= 0):
            raise ValueError(f"mean_entropy = {mean_entropy}, must not be negative")
        return min(LEVELS - 1, int(mean_entropy / self._max_entropy * LEVELS))

    def _index(self) -> int:
        """Nine bits: mean of the older half, mean of the newer half, batches ahead."""
        levels = list(self._drafted)
        newer, older = sum(levels[:_HALF]) // _HALF, sum(levels[_HALF:]) // _HALF
        return (older * LEVELS + newer) * LEVELS + self._ahead


def _levels(newest_first: Iterable[int]) -> deque[int]:
    return deque(newest_first, HISTORY)
