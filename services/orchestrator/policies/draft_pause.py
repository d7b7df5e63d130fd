"""Whether a session's draft model pays for itself; where it does not, it rests."""

from __future__ import annotations

_FORGETS = 0.95  # of what was saved, a round later
_TRUST = 4.0  # tokens' worth of plain decoding that may be lost: chance alone does as much in a few rounds
_FIRST, _LONGEST = 4, 64
_PROVEN = 32  # rounds in a row that end doubts


class DraftPause:
    """Adds up what rounds with the draft model saved against plain decoding of the same tokens, by the cost curves,
    later rounds counting more. Once too much is lost, rounds go without the model: 4, 8, ... up to 64 of them while
    every trial ends so. Prompt lookup, which costs no step, goes on meanwhile."""

    __slots__ = ("_pause", "_resting", "_rounds", "_saved")

    def __init__(self) -> None:
        self._pause = _FIRST
        self._resting = 0
        self._rounds = 0
        self._saved = 0.0  # in tokens of plain decoding

    def may_draft(self) -> bool:
        """Asked once a round."""
        if self._resting:
            self._resting -= 1
            return False
        return True

    def drafted(self, tokens: int, cost: float, plain: float) -> None:
        """A round with the draft model gave so many tokens. plain: the cost of one without a draft."""
        self._saved = self._saved * _FORGETS + tokens - cost / plain
        self._rounds += 1
        if self._saved < -_TRUST:
            self._resting, self._pause = self._pause, min(2 * self._pause, _LONGEST)
            self._rounds, self._saved = 0, 0.0
        elif self._rounds >= _PROVEN:
            self._pause = _FIRST
