"""Ends a text at the first stop string, without giving out any part of one."""

from __future__ import annotations

from collections.abc import Sequence


class StopMatcher:
    """Passes text through until a stop string is complete. How the text is cut into pieces does not matter.

    The match that ends first counts; of several that end there, the longest. Text before it is given out, the match and
    all behind it is not.
    """

    __slots__ = ("_held", "_stops", "matched")

    def __init__(self, stops: Sequence[str]) -> None:
        """Raises ValueError for an empty stop string."""
        if "" in stops:
            raise ValueError("stop: holds an empty string, must not")
        self._stops = tuple(stops)
        self._held = ""
        self.matched: str | None = None

    def push(self, piece: str, may_match: bool = True) -> str:
        """The text that is certain to stand before any match. may_match False: none ends in this piece."""
        if self.matched is not None:
            return ""
        text, known = self._held + piece, len(self._held)
        found = [(at + len(stop), at, stop) for stop in self._stops if (at := _find(text, stop, known)) >= 0]
        if found and may_match:
            _, at, self.matched = min(found)
            self._held = ""
            return text[:at]
        sure = len(text) - self._longest_beginning(text)
        self._held = text[sure:]
        return text[:sure]

    def flush(self) -> str:
        """The text held back, once no more will come; "" after a match."""
        held, self._held = self._held, ""
        return held

    def _longest_beginning(self, text: str) -> int:
        """Length of the longest end of `text` with which a stop string begins."""
        longest = max((len(stop) for stop in self._stops), default=1) - 1
        for length in range(min(longest, len(text)), 0, -1):
            if any(stop.startswith(text[-length:]) for stop in self._stops):
                return length
        return 0


def _find(text: str, stop: str, known: int) -> int:
    """Where `stop` begins that ends behind the first `known` characters; -1 for nowhere."""
    return text.find(stop, max(0, known - len(stop) + 1))
