"""The paths of the server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST

from orchestrator.api.admission import Admission
from orchestrator.api.answers import Answer, Head, chat_answer, completion_answer, system_fingerprint
from orchestrator.api.metrics import Metrics
from orchestrator.api.prepare import Defaults, check_model, check_units, missing_units, prepare_chat, prepare_completion
from orchestrator.api.schemas import ChatBody, CompletionBody, GenerationBody
from orchestrator.api.serving import Serving, Work
from orchestrator.engine.engine import Engine
from orchestrator.engine.request import GenerationRequest


@dataclass(frozen=True, slots=True)
class Context:
    """What the routes are given."""

    engine: Engine
    admission: Admission
    metrics: Metrics
    defaults: Defaults
    started: int  # Unix time

    def head(self) -> Head:
        description = self.engine.description
        return Head(description.model, system_fingerprint(description))


def generation_routes(context: Context) -> APIRouter:
    router = APIRouter(prefix="/v1")
    serving = Serving(context.engine, context.admission, context.metrics)

    @router.post("/chat/completions")
    async def chat_completions(body: ChatBody, http: Request) -> Response:
        context.admission.check()
        request = await prepare_chat(body, context.engine, context.defaults)
        answer = chat_answer(context.head(), context.engine.text.vocabulary, logprobs=bool(body.logprobs))
        return await serving.respond(http, _work("chat", body, request, answer))

    @router.post("/completions")
    async def completions(body: CompletionBody, http: Request) -> Response:
        context.admission.check()
        request = await prepare_completion(body, context.engine, context.defaults)
        answer = completion_answer(context.head(), context.engine.text.vocabulary, logprobs=body.logprobs is not None)
        return await serving.respond(http, _work("completions", body, request, answer))

    return router


def _work(endpoint: str, body: GenerationBody, request: GenerationRequest, answer: Answer) -> Work:
    return Work(
        endpoint=endpoint,
        request=request,
        answer=answer,
        seed=request.noise.seed if body.seed is None else body.seed,
        stream=bool(body.stream),
        include_usage=body.stream_options is not None and bool(body.stream_options.include_usage),
    )


def status_routes(context: Context) -> APIRouter:
    router = APIRouter()
    engine = context.engine

    @router.get("/v1/models")
    async def models() -> dict[str, Any]:
        check_units(engine)
        return {"object": "list", "data": [_model(context)]}

    @router.get("/v1/models/{name:path}")
    async def model(name: str) -> dict[str, Any]:
        check_units(engine)
        check_model(name, engine.description)
        return _model(context)

    @router.get("/healthz")
    async def healthz() -> dict[str, str]:
        return {"status": "ok"}

    @router.get("/readyz")
    async def readyz() -> JSONResponse:
        missing = missing_units(engine)
        ready = not missing and not context.admission.draining
        status = "ready" if ready else "draining" if context.admission.draining else "waiting"
        told = {"status": status, "missing": missing, "replicas": engine.replicas()}
        return JSONResponse(told, 200 if ready else 503)

    @router.get("/metrics")
    async def metrics() -> PlainTextResponse:
        return PlainTextResponse(context.metrics.render(), media_type=CONTENT_TYPE_LATEST)

    return router


def _model(context: Context) -> dict[str, Any]:
    description = context.engine.description
    return {
        "id": description.model,
        "object": "model",
        "created": context.started,
        "owned_by": "hetspec",
        "max_model_len": description.max_context,
    }
