"""One request in progress."""

from __future__ import annotations

import asyncio
import time

from orchestrator.engine.errors import DeadlineExceeded, UnitsUnavailable
from orchestrator.engine.output import Output
from orchestrator.engine.request import Emission, Statistics
from orchestrator.engine.round import Steps, run_round
from orchestrator.engine.session import Session
from orchestrator.units.errors import NoReplica


class Generation:
    """An async iterator of emissions, one a round.

    However it ends (last token, error, cancellation, `aclose`), every unit is told to free what it holds. Whoever
    leaves it early calls `aclose`.
    """

    def __init__(self, session: Session, steps: Steps, output: Output) -> None:
        self._session = session
        self._steps = steps
        self._output = output
        self._running = False
        self._ended = False

    @property
    def statistics(self) -> Statistics:
        return self._session.statistics

    def __aiter__(self) -> Generation:
        return self

    async def __anext__(self) -> Emission:
        """Raises EngineError."""
        if self._ended:
            raise StopAsyncIteration
        if self._running:
            raise RuntimeError("a round of this generation is running already")
        self._running = True
        try:
            emission = await self._next()
        except BaseException:
            self._end()
            raise
        finally:
            self._running = False
        if emission.finish_reason is not None:
            self._end()
        return emission

    async def aclose(self) -> None:
        if self._running:
            raise RuntimeError("a round of this generation is running: cancel it instead")
        self._end()

    async def _next(self) -> Emission:
        session, statistics = self._session, self._session.statistics
        start_ns, in_units_ns = time.perf_counter_ns(), session.in_units_ns
        try:
            async with asyncio.timeout_at(session.request.deadline):
                walk = await run_round(session, self._steps)
        except TimeoutError:
            raise DeadlineExceeded(f"out of time after {statistics.emitted} tokens") from None
        except NoReplica as error:
            raise UnitsUnavailable(str(error)) from error
        emission = self._output.push(walk)
        statistics.emitted += len(emission.tokens)
        round_ns = time.perf_counter_ns() - start_ns
        statistics.add_host_ns("orchestrator", max(0, round_ns - (session.in_units_ns - in_units_ns)))
        return emission

    def _end(self) -> None:
        if not self._ended:
            self._ended = True
            self._session.release()
