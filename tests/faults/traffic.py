"""Requests without a pause, each checked against what it must say."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace

from orchestrator.engine.engine import Engine
from orchestrator.engine.errors import EngineError
from orchestrator.policies.drafting_algorithm import Drafting
from tests.system import Ask

_DEADLINE_S = 180.0


def pipelines(plain: Ask) -> list[Ask]:
    """All ways of decoding the same that do not wait: every drafting algorithm, trees, one outcome and four."""
    ways = [("ahasd", drafting) for drafting in Drafting] + [("full", Drafting.FIXED)]
    return [
        replace(plain, mode=mode, drafting=drafting, outcomes=outcomes, max_depth=8)
        for mode, drafting in ways
        for outcomes in (1, 4)
    ]


@dataclass(eq=False)
class _Request:
    tokens: int = 0
    ended: bool = False


@dataclass
class Traffic:
    """expected: of every ask, the tokens of plain decoding. `run` asks them in turn, `at_once` at a time."""

    engine: Engine
    expected: Mapping[Ask, list[int]]
    at_once: int
    answered: int = 0
    tokens: int = 0
    rebuilds: int = 0
    lost: list[str] = field(default_factory=list)
    differing: list[Ask] = field(default_factory=list)
    _running: set[_Request] = field(default_factory=set)
    _stopping: bool = False

    async def run(self) -> None:
        asks = itertools.cycle(self.expected)
        async with asyncio.TaskGroup() as group:
            for _ in range(self.at_once):
                group.create_task(self._ask_in_turn(asks))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Beside what is done in it; then what runs goes on to its end."""
        task = asyncio.create_task(self.run())
        try:
            yield
            self.stop()
            await task
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    def told(self) -> str:
        return (
            f"requests {self.answered}, tokens {self.tokens}, rebuilds {self.rebuilds}, lost {len(self.lost)}, "
            f"differing {len(self.differing)}"
        )

    def stop(self) -> None:
        """Takes up nothing more; what runs goes on to its end."""
        self._stopping = True

    async def recovery_s(self) -> float:
        """How long it takes until every request that runs now has a token more."""
        clock = asyncio.get_running_loop().time
        began, seen = clock(), [(request, request.tokens) for request in self._running]
        while any(not request.ended and request.tokens == tokens for request, tokens in seen):
            await asyncio.sleep(0.005)
        return clock() - began

    async def _ask_in_turn(self, asks: itertools.cycle[Ask]) -> None:
        while not self._stopping:
            if all(self.engine.ready().values()):  # else a client is told to come again, with 503
                await self._ask(next(asks))
            else:
                await asyncio.sleep(0.02)

    async def _ask(self, ask: Ask) -> None:
        request, tokens = _Request(), []
        self._running.add(request)
        deadline = asyncio.get_running_loop().time() + _DEADLINE_S
        try:
            async with aclosing(self.engine.generate(ask.request(deadline))) as generation:
                async for emission in generation:
                    tokens += [token.id for token in emission.tokens]
                    request.tokens = len(tokens)
        except EngineError as error:
            self.lost.append(f"{type(error).__name__}: {error}")
        else:
            self.answered += 1
            self.tokens += len(tokens)
            self.rebuilds += generation.statistics.rebuilds
            if tokens != self.expected[ask]:
                self.differing.append(ask)
        finally:
            request.ended = True
            self._running.discard(request)
