"""Puts the HTTP server together around an engine."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from prometheus_client import CollectorRegistry
from starlette.types import ASGIApp

from hetspec.telemetry.registry import new_registry
from hetspec.telemetry.tracing import Traces
from orchestrator.api import errors
from orchestrator.api.admission import Admission
from orchestrator.api.auth import Authentication
from orchestrator.api.body_limit import BodyLimit
from orchestrator.api.cors import Cors
from orchestrator.api.edc_routes import edc_routes
from orchestrator.api.errors import ApiError
from orchestrator.api.explanations import Explanations, explanation_routes
from orchestrator.api.head import HeadAsGet
from orchestrator.api.key_metrics import KeyMetrics
from orchestrator.api.metrics import Metrics
from orchestrator.api.observe_routes import observe_routes
from orchestrator.api.prepare import Defaults
from orchestrator.api.request_log import RequestLog
from orchestrator.api.routes import Context, generation_routes, status_routes
from orchestrator.api.token_routes import token_routes
from orchestrator.config import OrchestratorSettings
from orchestrator.engine.engine import Engine
from orchestrator.engine.request import Mode


def create_app(
    engine: Engine,
    settings: OrchestratorSettings,
    admission: Admission,
    registry: CollectorRegistry | None = None,
    traces: Traces | None = None,
) -> ASGIApp:
    """`engine` is started with the application and closed with it. registry: takes the metrics of the requests."""
    metrics = Metrics(registry or new_registry(), running=lambda: admission.running, queued=lambda: admission.queued)
    defaults = Defaults(Mode(settings.mode), settings.min_gain, settings.request_timeout_s)
    explanations = Explanations(settings.kept_requests, settings.kept_tasks)
    context = Context(engine, admission, metrics, defaults, int(time.time()), explanations)

    def refused(error: ApiError) -> None:
        metrics.refused(error.status, error.code)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await engine.start()
        try:
            yield
        finally:
            await engine.close()

    app = FastAPI(title="hetspec", lifespan=lifespan, docs_url=None, redoc_url=None, redirect_slashes=False)
    app.add_middleware(HeadAsGet)
    app.add_middleware(BodyLimit, max_bytes=settings.max_body_bytes)
    if (keys := settings.key_ring()) is not None:
        metrics.registry.register(KeyMetrics(keys))
        app.add_middleware(Authentication, keys=keys, on_refusal=refused)
    errors.install(app, on_refusal=refused)
    app.include_router(generation_routes(context))
    app.include_router(status_routes(context))
    app.include_router(token_routes(context))
    app.include_router(observe_routes(context))
    app.include_router(explanation_routes(engine, explanations))
    app.include_router(edc_routes(engine, explanations))
    served = Cors(app, settings.cors_origins.split(",")) if settings.cors_origins else app
    return RequestLog(served, traces)
