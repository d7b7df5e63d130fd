"""How many choices are let in: so many are computed, so many wait their turn, what comes on top is refused."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from orchestrator.api.errors import ApiError, invalid, rate_limited
from orchestrator.api.fair_queue import FairQueue, QueueFull, Ticket
from orchestrator.api.service_times import ServiceTimes
from orchestrator.engine.errors import DeadlineExceeded


@dataclass(slots=True, eq=False)
class _Waiter(Ticket):
    decided: asyncio.Event = field(default_factory=asyncio.Event)
    admitted: bool = False
    refusal: ApiError | None = None


class Admission:
    """running, queued: choices, that is sessions of the engine. A request takes the places of all of its at once."""

    def __init__(self, max_running: int, max_queued: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._max_running = max_running
        self._queue = FairQueue(max_queued)
        self._times = ServiceTimes()
        self._clock = clock
        self.running = 0
        self.draining = False
        self._closed = False
        self._in_progress: set[asyncio.Timeout] = set()

    @property
    def queued(self) -> int:
        return self._queue.places

    @property
    def idle(self) -> bool:
        return self.running == 0 and self.queued == 0

    def check(self, client: str = "", count: int = 1, param: str = "n") -> None:
        """Raises the refusal that a new request would meet. param: the field that makes it so many choices."""
        if count > self._max_running:
            raise invalid(
                param, f"{param}: {count} choices, and this server computes at most {self._max_running} at once"
            )
        if self.draining:
            raise _shutting_down()
        if not self._starts_at_once(count):
            try:
                self._queue.check(client, count)
            except QueueFull as full:
                raise self._too_many(full.excess) from None

    @asynccontextmanager
    async def slot(self, client: str = "", count: int = 1, deadline: float | None = None) -> AsyncIterator[None]:
        """Holds `count` places. Raises ApiError, and DeadlineExceeded when `deadline` (the loop's time) comes first."""
        self.check(client, count)
        if self._starts_at_once(count):
            self.running += count
        else:
            await self._wait(client, count, deadline)
        for _ in range(count):
            self._times.begin(self._clock())
        try:
            yield
        finally:
            for _ in range(count):
                self._times.end(self._clock())
            self._free(count)

    def close(self) -> None:
        """The grace is over: what runs and what waits ends now, with a refusal that its client is told."""
        self.draining = self._closed = True
        now = asyncio.get_running_loop().time()
        for limit in self._in_progress:
            limit.reschedule(now)
        while (head := self._queue.head()) is not None:
            assert isinstance(head, _Waiter)
            self._queue.remove(head)
            head.refusal = _shutting_down()
            head.decided.set()

    @asynccontextmanager
    async def until_closed(self) -> AsyncIterator[None]:
        """Around each wait of a request that was let in. Raises ApiError when the server closes meanwhile."""
        if self._closed:
            raise _shutting_down()
        try:
            async with asyncio.timeout(None) as limit:
                self._in_progress.add(limit)
                try:
                    yield
                finally:
                    self._in_progress.discard(limit)
        except TimeoutError:
            if limit.expired():
                raise _shutting_down() from None
            raise

    def _starts_at_once(self, count: int) -> bool:
        return self.queued == 0 and self.running + count <= self._max_running

    async def _wait(self, client: str, count: int, deadline: float | None) -> None:
        """Returns with the places counted as running."""
        waiter = _Waiter(client, count)
        for displaced in self._queue.add(waiter):
            assert isinstance(displaced, _Waiter)
            displaced.refusal = self._too_many(displaced.places)
            displaced.decided.set()
        try:
            async with asyncio.timeout_at(deadline):
                await waiter.decided.wait()
        except BaseException as error:
            self._give_up(waiter)
            if isinstance(error, TimeoutError):
                raise DeadlineExceeded("out of time while it waited for its turn") from None
            raise
        if waiter.refusal is not None:
            raise waiter.refusal

    def _give_up(self, waiter: _Waiter) -> None:
        if waiter.admitted:  # in the moment it was cancelled
            self._free(waiter.places)
        elif waiter.refusal is None:
            self._queue.remove(waiter)
            self._let_in()  # it may have held up smaller ones

    def _free(self, count: int) -> None:
        self.running -= count
        self._let_in()

    def _let_in(self) -> None:
        while (head := self._queue.head()) is not None and self.running + head.places <= self._max_running:
            waiter = self._queue.pop()
            assert isinstance(waiter, _Waiter)
            self.running += waiter.places
            waiter.admitted = True
            waiter.decided.set()

    def _too_many(self, excess: int) -> ApiError:
        wait_s = self._times.expected_s(excess, self._clock())
        message = f"{self.running} choices are computed and {self.queued} wait"
        return rate_limited(message, "too_many_requests", wait_s)


def _shutting_down() -> ApiError:
    return ApiError(503, "the server is shutting down", type_="server_error", code="shutting_down")
