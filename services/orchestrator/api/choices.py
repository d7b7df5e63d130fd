"""The choices of one request, computed side by side."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine, Sequence
from typing import Any, Protocol

from orchestrator.engine.request import Emission


class Source(Protocol):
    """One choice's emissions."""

    def next(self) -> Coroutine[Any, Any, Emission]:
        """The next one; none is asked for behind the one with a finish reason."""
        ...

    async def aclose(self) -> None: ...


class SideBySide:
    """An async iterator of (choice, emission), as they come. One that fails fails them all.

    A choice is one emission ahead of the reader at most. Whoever leaves early, or by an error, calls `aclose`.
    """

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = sources
        self._idle = list(range(len(sources)))
        self._running: dict[asyncio.Task[Emission], int] = {}
        self._ready: deque[tuple[int, Emission]] = deque()

    def __aiter__(self) -> SideBySide:
        return self

    async def __anext__(self) -> tuple[int, Emission]:
        for choice in self._idle:
            self._running[asyncio.create_task(self._sources[choice].next())] = choice
        self._idle.clear()
        if not self._ready:
            await self._wait()
        choice, emission = self._ready.popleft()
        if emission.finish_reason is None:
            self._idle.append(choice)
        return choice, emission

    async def _wait(self) -> None:
        if not self._running:
            raise StopAsyncIteration
        done, _ = await asyncio.wait(self._running, return_when=asyncio.FIRST_COMPLETED)
        for task in sorted(done, key=self._running.__getitem__):
            emission = task.result()
            self._ready.append((self._running.pop(task), emission))

    async def aclose(self) -> None:
        """Returns when no choice is computed any more and the units have freed what they held."""
        tasks = list(self._running)
        for task in tasks:
            task.cancel()
        # The reader has been told of the first failure, or no longer wants to know.
        await asyncio.gather(*tasks, return_exceptions=True)
        for source in self._sources:
            await source.aclose()
