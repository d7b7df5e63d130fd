"""The paths of the server."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST

from orchestrator.api.admission import Admission
from orchestrator.api.answers import Answer, Head, chat_answer, completion_answer, system_fingerprint
from orchestrator.api.auth import client_of
from orchestrator.api.explanations import Explanations
from orchestrator.api.metrics import Metrics
from orchestrator.api.prepare import (
    Defaults,
    Prepared,
    check_model,
    check_units,
    missing_units,
    prepare_chat,
    prepare_completion,
)
from orchestrator.api.schemas import ChatBody, CompletionBody, GenerationBody
from orchestrator.api.serving import Serving, Work
from orchestrator.api.strict_json import StrictRoute
from orchestrator.engine.engine import Engine


@dataclass(frozen=True, slots=True)
class Context:
    """What the routes are given."""

    engine: Engine
    admission: Admission
    metrics: Metrics
    defaults: Defaults
    started: int  # Unix time
    explanations: Explanations = field(default_factory=Explanations)

    def head(self) -> Head:
        description = self.engine.description
        return Head(description.model, system_fingerprint(description))


def generation_routes(context: Context) -> APIRouter:
    router = APIRouter(prefix="/v1", route_class=StrictRoute)
    serving = Serving(context.engine, context.admission, context.metrics, context.explanations)

    @router.post("/chat/completions")
    async def chat_completions(body: ChatBody, http: Request) -> Response:
        context.admission.check(client_of(http), body.n or 1)
        prepared = await prepare_chat(body, context.engine, context.defaults)
        answer = chat_answer(context.head(), body, context.engine.text)
        return await serving.respond(http, _work(body, prepared, answer))

    @router.post("/completions")
    async def completions(body: CompletionBody, http: Request) -> Response:
        count = len(body.prompt) * (body.n or 1)
        context.admission.check(client_of(http), count, param="prompt" if len(body.prompt) > 1 else "n")
        prepared = await prepare_completion(body, context.engine, context.defaults)
        answer = completion_answer(context.head(), body, prepared, context.engine.text)
        return await serving.respond(http, _work(body, prepared, answer))

    return router


def _work(body: GenerationBody, prepared: Prepared, answer: Answer) -> Work:
    include_usage = body.stream_options is not None and bool(body.stream_options.include_usage)
    return Work(prepared, answer, stream=bool(body.stream), include_usage=include_usage)


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
        told: dict[str, Any] = {"status": status, "missing": missing, "replicas": engine.replicas()}
        told |= {"problem": engine.problem} if engine.problem else {}  # that no waiting will mend
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
