"""A generation in an emulated world, which goes on by itself: whoever reads slowly holds nobody up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from orchestrator.clock.clock import Arrival, Clock
from orchestrator.engine.generation import Generation
from orchestrator.engine.request import Emission, Statistics


class PumpedGeneration:
    """As a Generation, from outside."""

    def __init__(
        self, generation: Generation, clock: Clock, arrival: Arrival | None, plain_ns: Callable[[int], int]
    ) -> None:
        """plain_ns: of plain decoding alone, by the number of tokens."""
        self._generation = generation
        self._clock = clock
        self._arrival = arrival
        self._plain_ns = plain_ns
        self._said: asyncio.Queue[Emission | Exception | None] = asyncio.Queue()
        self._pump: asyncio.Task[None] | None = None

    @property
    def statistics(self) -> Statistics:
        return self._generation.statistics

    def __aiter__(self) -> PumpedGeneration:
        return self

    async def __anext__(self) -> Emission:
        """Raises EngineError."""
        if self._pump is None:
            self._pump = asyncio.create_task(self._run())
        said = await self._said.get()
        if said is None or isinstance(said, Exception):
            self._said.put_nowait(None)
            raise said or StopAsyncIteration
        return said

    async def aclose(self) -> None:
        if self._pump is not None:
            self._pump.cancel()
            await asyncio.gather(self._pump, return_exceptions=True)
        await self._generation.aclose()

    async def _run(self) -> None:
        """The last emission comes when the session has left the world, and its account is closed."""
        last: Emission | None = None
        try:
            async with self._clock.present(self._arrival) as presence:
                self.statistics.presence = presence
                async for emission in self._generation:
                    if emission.finish_reason is None:
                        self._said.put_nowait(emission)
                    else:
                        last = emission
            if presence is not None:
                presence.plain_ns = await asyncio.to_thread(self._plain_ns, self.statistics.emitted)
        except Exception as error:
            self._said.put_nowait(error)
            return
        if last is not None:
            self._said.put_nowait(last)
        self._said.put_nowait(None)
