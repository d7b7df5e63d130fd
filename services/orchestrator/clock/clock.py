"""What the engine asks of a clock, and the host's."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from orchestrator.clock.presence import Presence

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Arrival:
    """When a session of a closed workload comes: so long after the workload begins, which is when `sessions` of it have
    been announced."""

    after_ns: int = 0
    sessions: int = 0


class Clock(Protocol):
    @property
    def name(self) -> str: ...

    def now_ns(self) -> int: ...

    def present(self, arrival: Arrival | None) -> AbstractAsyncContextManager[Presence | None]:
        """A session's stay, from its arrival on."""

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """What a session does beside what it does."""

    async def join(self, task: asyncio.Task[T]) -> T: ...

    async def hand_over(self, result: asyncio.Future[T]) -> T:
        """Waits for what another task of the session, or a device, ends by `wake`."""

    def wake(self, result: asyncio.Future[T], value: T) -> None: ...

    def away(self) -> AbstractContextManager[None]:
        """Around a wait for what other sessions do."""


class HostClock:
    name = "host"

    def now_ns(self) -> int:
        return time.perf_counter_ns()

    @asynccontextmanager
    async def present(self, arrival: Arrival | None) -> AsyncIterator[Presence | None]:
        yield None

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        return asyncio.create_task(work)

    async def join(self, task: asyncio.Task[T]) -> T:
        return await task

    async def hand_over(self, result: asyncio.Future[T]) -> T:
        return await result

    def wake(self, result: asyncio.Future[T], value: T) -> None:
        if not result.done():
            result.set_result(value)

    @contextmanager
    def away(self) -> Iterator[None]:
        yield
