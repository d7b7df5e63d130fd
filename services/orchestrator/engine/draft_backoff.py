"""How often a drafter that fails is asked again."""

from __future__ import annotations


class DraftBackoff:
    """After a fault of the drafter, rounds go without it: 1, 2, 4, ... up to 32 of them while faults go on."""

    __slots__ = ("_pause", "_resting")

    def __init__(self) -> None:
        self._pause = 1
        self._resting = 0

    def may_draft(self) -> bool:
        self._resting -= 1
        return self._resting < 0

    def failed(self) -> None:
        self._resting = self._pause
        self._pause = min(2 * self._pause, 32)

    def succeeded(self) -> None:
        self._pause = 1
