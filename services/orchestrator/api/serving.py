"""One request from admission to its last token."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import anyio
from fastapi import Request
from fastapi.responses import JSONResponse, Response

from orchestrator.api.admission import Admission
from orchestrator.api.answers import Answer, Json, Usage, statistics_json
from orchestrator.api.connection import while_connected
from orchestrator.api.metrics import Metrics, Observation
from orchestrator.api.sse import EventStream
from orchestrator.engine.engine import Engine, Generation
from orchestrator.engine.errors import RequestFailed
from orchestrator.engine.request import Emission, EmittedToken, GenerationRequest

_RELEASE_S = 10.0  # for the units to free what a request held


@dataclass(frozen=True, slots=True)
class Work:
    """What is to be generated, and how it is told."""

    endpoint: str
    request: GenerationRequest
    answer: Answer
    seed: int  # as the client wrote it
    stream: bool
    include_usage: bool


class Run:
    """An admitted request: the engine's emissions, counted as they pass."""

    def __init__(self, generation: Generation, observation: Observation, prompt_tokens: int) -> None:
        self._generation = generation
        self._observation = observation
        self._prompt_tokens = prompt_tokens
        self._completion_tokens = 0
        self._finish_reason: str | None = None

    def __aiter__(self) -> AsyncIterator[Emission]:
        return self

    async def __anext__(self) -> Emission:
        emission = await anext(self._generation)
        self._observation.emission(emission)
        self._completion_tokens += len(emission.tokens)
        self._finish_reason = emission.finish_reason
        return emission

    @property
    def finish_reason(self) -> str:
        if self._finish_reason is None:
            raise RequestFailed("the generation ended without a reason")
        return self._finish_reason

    @property
    def usage(self) -> Json:
        return Usage(self._prompt_tokens, self._completion_tokens).render()

    def statistics(self, seed: int) -> Json:
        return statistics_json(self._generation.statistics, seed)

    async def end(self, outcome: str) -> None:
        """Returns when the units have freed what the request held, even where the caller is being cancelled."""
        with anyio.move_on_after(_RELEASE_S, shield=True):
            await self._generation.aclose()
        self._observation.end(outcome, self._generation.statistics)


class Serving:
    def __init__(self, engine: Engine, admission: Admission, metrics: Metrics) -> None:
        self._engine = engine
        self._admission = admission
        self._metrics = metrics

    async def respond(self, http: Request, work: Work) -> Response:
        """Raises what goes wrong before the first token: until then a failure is still an HTTP status."""
        if not work.stream:
            return JSONResponse(await while_connected(http, self._whole(work)))
        chunks = self._chunks(work)
        first = await while_connected(http, _first(chunks))
        return EventStream(first, chunks)

    async def _whole(self, work: Work) -> Json:
        text: list[str] = []
        tokens: list[EmittedToken] = []
        async with self._run(work) as run:
            async for emission in run:
                text.append(emission.text)
                tokens += emission.tokens
            body = work.answer.whole("".join(text), tokens, run.finish_reason)
            return body | {"usage": run.usage, "hetspec": run.statistics(work.seed)}

    async def _chunks(self, work: Work) -> AsyncGenerator[Json, None]:
        """Every chunk of a stream. With `include_usage`, all carry the field and one more chunk tells it."""
        answer = work.answer
        usage = {"usage": None} if work.include_usage else {}
        opened = False
        async with self._run(work) as run:
            async for emission in run:
                if not opened:
                    opened = True
                    for chunk in answer.opening():
                        yield chunk | usage
                if emission.text or emission.tokens:
                    yield answer.chunk(emission) | usage
            closing = answer.closing(run.finish_reason)
            statistics = {"hetspec": run.statistics(work.seed)}
            if work.include_usage:
                yield closing | usage
                yield answer.empty() | {"usage": run.usage} | statistics
            else:
                yield closing | statistics

    @asynccontextmanager
    async def _run(self, work: Work) -> AsyncIterator[Run]:
        observation = self._metrics.observe(work.endpoint, work.request)
        async with self._admission.slot():
            run = Run(self._engine.generate(work.request), observation, len(work.request.prompt_ids))
            outcome = "failed"
            try:
                yield run
                outcome = run.finish_reason
            except (asyncio.CancelledError, GeneratorExit):
                outcome = "cancelled"
                raise
            finally:
                await run.end(outcome)


async def _first(chunks: AsyncGenerator[Json, None]) -> Json:
    return await anext(chunks)
