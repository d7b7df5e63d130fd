"""One request from admission to its last token."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from fastapi import Request
from fastapi.responses import JSONResponse, Response

from hetspec.telemetry.tracing import span
from orchestrator.api.admission import Admission
from orchestrator.api.answers import Answer
from orchestrator.api.auth import account_of, client_of
from orchestrator.api.choice_answers import Json
from orchestrator.api.connection import while_connected
from orchestrator.api.explanations import Explanations
from orchestrator.api.metrics import Metrics
from orchestrator.api.prepare import Prepared
from orchestrator.api.run import Run
from orchestrator.api.sse import EventStream
from orchestrator.api.statistics import statistics_json
from orchestrator.engine.engine import Engine
from orchestrator.engine.request import Emission


@dataclass(frozen=True, slots=True)
class Work:
    """What is to be generated, and how it is told."""

    prepared: Prepared
    answer: Answer
    stream: bool
    include_usage: bool


class Serving:
    def __init__(self, engine: Engine, admission: Admission, metrics: Metrics, explanations: Explanations) -> None:
        self._engine = engine
        self._explanations = explanations
        self._admission = admission
        self._metrics = metrics

    async def respond(self, http: Request, work: Work) -> Response:
        """Raises what goes wrong before the first token: until then a failure is still an HTTP status."""
        if not work.stream:
            return JSONResponse(await while_connected(http, self._whole(http, work)))
        chunks = self._chunks(http, work)
        first = await while_connected(http, _first(chunks))
        return EventStream(first, chunks)

    async def _whole(self, http: Request, work: Work) -> Json:
        emissions: list[list[Emission]] = [[] for _ in work.prepared.requests]
        async with self._run(http, work) as run:
            async for index, emission in run:
                emissions[index].append(emission)
        body = work.answer.whole([_joined(of_choice) for of_choice in emissions])
        return body | {"usage": run.usage.render()} | self._statistics(http, run, work)

    async def _chunks(self, http: Request, work: Work) -> AsyncGenerator[Json, None]:
        """Every chunk of a stream. With `include_usage`, all carry the field and one more chunk tells it."""
        answer = work.answer
        usage = {"usage": None} if work.include_usage else {}
        opened: set[int] = set()
        async with self._run(http, work) as run:
            async for index, emission in run:
                if index not in opened:
                    opened.add(index)
                    for chunk in answer.opening(index, emission):
                        yield chunk | usage
                if emission.text or emission.tokens:
                    yield answer.chunk(index, emission) | usage
                if emission.finish_reason is not None:
                    closing = answer.closing(index, emission.finish_reason) | usage
                    is_last = run.has_ended and not work.include_usage
                    yield closing | (self._statistics(http, run, work) if is_last else {})
            if work.include_usage:
                yield answer.empty() | {"usage": run.usage.render()} | self._statistics(http, run, work)

    @asynccontextmanager
    async def _run(self, http: Request, work: Work) -> AsyncIterator[Run]:
        requests = work.prepared.requests
        observation = self._metrics.observe(
            work.answer.endpoint.name, requests[0].mode.value, work.prepared.prompt_tokens
        )
        async with AsyncExitStack() as place:
            with span("admission"):
                slot = self._admission.slot(client_of(http), len(requests), requests[0].deadline)
                await place.enter_async_context(slot)
            observation.admitted()
            generations = [self._engine.generate(request) for request in requests]
            run = Run(generations, observation, work.prepared, account_of(http), self._admission.until_closed)
            outcome = "failed"
            try:
                yield run
                outcome = run.outcome
            except (asyncio.CancelledError, GeneratorExit):
                outcome = "cancelled"
                raise
            finally:
                await run.end(outcome)

    def _statistics(self, http: Request, run: Run, work: Work) -> Json:
        """Of an answer that is complete."""
        self._explanations.add(http, work.prepared.requests[0].request_id, run.statistics)
        return {"hetspec": statistics_json(run.statistics, work.prepared.seed, self._engine.world)}


def _joined(emissions: Sequence[Emission]) -> Emission:
    """All of a choice, as one."""
    text = "".join(emission.text for emission in emissions)
    tokens = tuple(token for emission in emissions for token in emission.tokens)
    return Emission(text, tokens, emissions[-1].finish_reason, emissions[0].prompt)


async def _first(chunks: AsyncGenerator[Json, None]) -> Json:
    return await anext(chunks)
