"""Puts the HTTP server together around an engine."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from orchestrator.api import errors
from orchestrator.api.admission import Admission
from orchestrator.api.body_limit import BodyLimit
from orchestrator.api.metrics import Metrics
from orchestrator.api.prepare import Defaults
from orchestrator.api.routes import Context, generation_routes, status_routes
from orchestrator.config import OrchestratorSettings
from orchestrator.engine.engine import Engine
from orchestrator.engine.request import Mode


def create_app(engine: Engine, settings: OrchestratorSettings, admission: Admission) -> FastAPI:
    """`engine` is started with the application and closed with it."""
    metrics = Metrics(running=lambda: admission.running, queued=lambda: admission.queued)
    defaults = Defaults(Mode(settings.mode), settings.request_timeout_s)
    context = Context(engine, admission, metrics, defaults, started=int(time.time()))

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await engine.start()
        try:
            yield
        finally:
            await engine.close()

    app = FastAPI(title="hetspec", lifespan=lifespan, docs_url=None, redoc_url=None)
    app.add_middleware(BodyLimit, max_bytes=settings.max_body_bytes)
    errors.install(app, on_refusal=lambda error: metrics.refused(error.status, error.code))
    app.include_router(generation_routes(context))
    app.include_router(status_routes(context))
    return app
