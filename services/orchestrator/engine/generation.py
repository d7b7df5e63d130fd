"""One request in progress."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

from hetspec.telemetry.tracing import span
from orchestrator.clock.world import NotPriced
from orchestrator.engine.errors import DeadlineExceeded, RequestFailed, UnitsUnavailable
from orchestrator.engine.output import Output
from orchestrator.engine.request import Emission, EmittedToken, GenerationRequest, Statistics
from orchestrator.engine.round import Decoding, Rounds, Steps
from orchestrator.engine.session import Session
from orchestrator.units.errors import NoReplica


class Generation:
    """An async iterator of emissions, one a round; before them, what the request wants of its prompt.

    With the last token, what the units hold goes to the prefix cache; however else it ends (error, cancellation,
    `aclose`), they are told to free it. Whoever leaves it early calls `aclose`.
    """

    def __init__(self, session: Session, steps: Steps, output: Output, rounds: Decoding | None = None) -> None:
        """rounds: how the session decodes; None: in turn."""
        self._session = session
        self._steps = steps
        self._rounds = rounds or Rounds(session, steps)
        self._output = output
        self._begun = False
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
            if emission.finish_reason is not None:
                await self._rounds.close()
        except BaseException:
            self._end()
            raise
        finally:
            self._running = False
        if emission.finish_reason is not None:
            self._ended = True
            self._session.end_well()
        return emission

    async def aclose(self) -> None:
        if self._running:
            raise RuntimeError("a round of this generation is running: cancel it instead")
        self._end()

    async def _next(self) -> Emission:
        session, statistics = self._session, self._session.statistics
        start_ns, in_units_ns = time.perf_counter_ns(), session.in_units_ns
        before_ns = Counter(statistics.host_ns)
        session.timeline.round = statistics.rounds + 1
        if statistics.presence is not None:
            statistics.presence.round = statistics.rounds + 1
        try:
            with span("round", number=statistics.rounds + 1):
                async with asyncio.timeout_at(session.request.deadline):
                    emission = await self._advance()
        except TimeoutError:
            raise DeadlineExceeded(f"out of time after {statistics.emitted} tokens") from None
        except NotPriced as error:
            raise RequestFailed(f"its time and energy cannot be told: {error}") from error
        except NoReplica as error:
            raise UnitsUnavailable(str(error)) from error
        statistics.emitted += len(emission.tokens)
        if statistics.presence is not None:
            statistics.presence.emitted(len(emission.tokens), session.clock.now_ns())
        round_ns = time.perf_counter_ns() - start_ns
        statistics.add_host_ns("orchestrator", max(0, round_ns - (session.in_units_ns - in_units_ns)))
        self._steps.drafting.learn(session, Counter(statistics.host_ns) - before_ns)
        return emission

    async def _advance(self) -> Emission:
        request = self._session.request
        self._steps.drafting.prepare(self._session)
        if not self._begun:
            self._begun = True
            if request.scores_prompt or request.max_tokens == 0:
                return await self._tell_prompt(request)
        return self._output.push(await self._rounds.next())

    async def _tell_prompt(self, request: GenerationRequest) -> Emission:
        """Without a round: it ends a request of no tokens."""
        prompt: tuple[EmittedToken, ...] = ()
        if request.scores_prompt:
            await self._steps.scoring.score_prompt(self._session)
            prompt = tuple(map(EmittedToken, request.prompt_ids, (None, *self._session.prompt_logprobs)))
        return Emission("", (), None if request.max_tokens else "length", prompt)

    def _end(self) -> None:
        if not self._ended:
            self._ended = True
            self._rounds.abort()
            self._session.release()
