"""A session that is made up: tokens that never repeat, moved on task by task."""

from __future__ import annotations

from collections.abc import Iterator

from hetspec.decoding.history import History
from hetspec.rpc.messages import SessionUpdate

_STRIDE = 7919  # a prime: neighbours are far apart, and no sequence returns


def made_up_tokens(vocab_size: int) -> Iterator[int]:
    token = 0
    while True:
        token = (token + _STRIDE) % vocab_size
        yield token


class Text:
    """Of one unit. `move` says how the session goes on, and takes it that it did."""

    def __init__(self, session: str, vocab_size: int, fork_of: Text | None = None, length: int = 0) -> None:
        """fork_of: begins with that one's first `length` tokens."""
        self.session = session
        self._fork_of = fork_of.session if fork_of else ""
        self._history: History = History(fork_of._history[:length] if fork_of else ())
        self._tokens = made_up_tokens(vocab_size)

    def __len__(self) -> int:
        return len(self._history)

    def move(self, count: int) -> SessionUpdate:
        """`count` tokens more."""
        tokens = tuple(next(self._tokens) for _ in range(count))
        update = SessionUpdate(
            self.session, 1, len(self._history), self._history.hash, append=tokens, fork_of=self._fork_of
        )
        self._history.extend(tokens)
        self._fork_of = ""
        return update
