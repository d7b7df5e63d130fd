"""The target's hidden rows that a session's drafter has not been given yet.

A draft model that reads features takes, with each token, the target's hidden row of the token before it (EAGLE, arXiv
2401.15077).
"""

from __future__ import annotations

from collections.abc import Sequence

from hetspec.rpc.channel import MESSAGE_LIMIT_BYTES

MAX_ROWS = 2048


class Features:
    """Rows by the absolute position of their token. Bounded: the newest stay, and a row that went is no more than a
    worse draft."""

    __slots__ = ("_given", "_max_rows", "_row_bytes", "_rows")

    def __init__(self, row_bytes: int, max_rows: int = MAX_ROWS) -> None:
        """Of rows so wide that so many do not fit well into a message, fewer are kept."""
        self._row_bytes = row_bytes
        self._max_rows = max(1, min(max_rows, MESSAGE_LIMIT_BYTES // 4 // row_bytes))
        self._rows: dict[int, bytes] = {}
        self._given = 0  # rows of positions below are with the drafter, or of no use to it any more

    def add(self, first: int, hidden: bytes) -> None:
        """The rows of the tokens from position `first` on. What the drafter has is passed over."""
        for position, start in enumerate(range(0, len(hidden), self._row_bytes), first):
            if position >= self._given:
                self._rows[position] = hidden[start : start + self._row_bytes]
        self._drop(sorted(self._rows)[: -self._max_rows])

    def add_accepted(self, first: int, hidden: bytes, nodes: Sequence[int]) -> None:
        """The rows of a tree's accepted nodes, which are the tokens from position `first` on.

        hidden: the row of the token that the tree hangs below, then of its nodes.
        """
        starts = [(1 + node) * self._row_bytes for node in nodes]
        self.add(first, b"".join(hidden[start : start + self._row_bytes] for start in starts))

    def reach(self, length: int) -> bool:
        """Whether the row before the last of `length` tokens is here."""
        return length - 2 in self._rows

    def before(self, length: int) -> bytes:
        """Of `length` tokens the last ones, as far back as there is a row before each: these rows, in order."""
        first = length - 1
        while first - 1 in self._rows:
            first -= 1
        return b"".join(self._rows[position] for position in range(first, length - 1))

    def gave(self, length: int) -> None:
        """The drafter has what `before` told of these tokens."""
        self._given = max(self._given, length - 1)
        self._drop([position for position in self._rows if position < self._given])

    def begin_again(self) -> None:
        """With a drafter that has none."""
        self._given = 0

    def _drop(self, positions: Sequence[int]) -> None:
        for position in positions:
            del self._rows[position]
