from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from orchestrator.api.admission import Admission
from orchestrator.api.app import create_app
from orchestrator.config import OrchestratorSettings
from tests.contract.fake_engine import FakeEngine


@pytest.fixture
def connect() -> Callable[..., Any]:
    """A client of an app around `engine`; settings by keyword."""

    @asynccontextmanager
    async def open_client(engine: FakeEngine, **settings: Any) -> AsyncIterator[httpx.AsyncClient]:
        chosen = OrchestratorSettings(**settings)
        app = create_app(engine, chosen, Admission(chosen.max_running, chosen.max_queued))
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            yield client

    return open_client
