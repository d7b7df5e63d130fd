"""What one task of a session tells another."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Generic, TypeVar

from orchestrator.clock.clock import Clock

T = TypeVar("T")


class Mailbox(Generic[T]):
    """A queue of at most `bound` messages, with one reader; time passes in the session's world while it waits."""

    def __init__(self, clock: Clock, bound: int = 1) -> None:
        self._clock = clock
        self._bound = bound
        self._messages: deque[T] = deque()
        self._reader: asyncio.Future[None] | None = None

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def has_reader(self) -> bool:
        """Whether somebody waits for a message."""
        return self._reader is not None and not self._messages

    def put(self, message: T) -> None:
        assert len(self._messages) < self._bound, "the writer goes on only when it has been read"
        self._messages.append(message)
        if self._reader is not None:
            self._clock.wake(self._reader, None)

    def take(self) -> T:
        """The oldest of those that are there."""
        return self._messages.popleft()

    async def get(self) -> T:
        while not self._messages:
            self._reader = asyncio.get_running_loop().create_future()
            await self._clock.hand_over(self._reader)
            self._reader = None
        return self._messages.popleft()
