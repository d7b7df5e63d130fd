"""How many requests are let in: so many run, so many wait in order of arrival, the next one is refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from orchestrator.api.errors import ApiError


class Admission:
    def __init__(self, max_running: int, max_queued: int) -> None:
        self._slots = asyncio.Semaphore(max_running)
        self._limit = max_running + max_queued
        self.running = 0
        self.queued = 0
        self.draining = False

    @property
    def idle(self) -> bool:
        return self.running == 0 and self.queued == 0

    def check(self) -> None:
        """Raises the refusal a new request would meet."""
        if self.draining:
            raise ApiError(503, "the server is shutting down", type_="server_error", code="shutting_down")
        if self.running + self.queued >= self._limit:
            message = f"{self.running} requests run and {self.queued} wait: try again later"
            headers = {"Retry-After": "1"}
            raise ApiError(429, message, type_="rate_limit_error", code="too_many_requests", headers=headers)

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        self.check()
        self.queued += 1
        try:
            await self._slots.acquire()
        finally:
            self.queued -= 1
        self.running += 1
        try:
            yield
        finally:
            self.running -= 1
            self._slots.release()
