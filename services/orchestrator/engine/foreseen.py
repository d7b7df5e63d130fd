"""What the target is known to choose beyond what a session has decided."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hetspec.decoding.history import History


@dataclass(frozen=True, slots=True)
class Foreseen:
    """`tokens` follow the first `start` tokens of the session."""

    start: int = 0
    tokens: tuple[int, ...] = ()

    def beyond(self, history: History) -> tuple[int, ...]:
        """Those that follow the history, which has gone on since; none where it went another way."""
        decided = history[self.start :]
        if tuple(decided) != self.tokens[: len(decided)]:
            return ()
        return self.tokens[len(decided) :]


def agreement(tokens: Sequence[int], others: Sequence[int]) -> int:
    """How many tokens both begin with."""
    pairs = enumerate(zip(tokens, others, strict=False))
    return next((place for place, (one, other) in pairs if one != other), min(len(tokens), len(others)))
