from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from tests.models import make_checkpoint
from tests.observe.spans import SpanCollector, collecting
from tests.system import Processes, Setup

MODES = ("plain", "chain", "tree")


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def collector() -> AsyncIterator[SpanCollector]:
    async with collecting() as made:
        yield made


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def processes(collector: SpanCollector, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Processes]:
    """All five services, tracing to `collector`; some layers are streamed."""
    tiny = make_checkpoint(tmp_path_factory.mktemp("tiny"), "qwen3", num_hidden_layers=4)
    setup = Setup(tiny, tmp_path_factory.mktemp("packs"), draft=tiny, dram_budget="25%")
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{collector.address}", "OTEL_BSP_SCHEDULE_DELAY": "200"}
    async with Processes(setup, tmp_path_factory.mktemp("logs"), environ) as started:
        yield started


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def answers(processes: Processes) -> list[dict[str, Any]]:
    """Six requests that have been answered, side by side, and one that was refused. Nothing runs after them."""
    async with httpx.AsyncClient(base_url=processes.url, timeout=120) as client:
        bodies = [
            {"prompt": list(range(30, 90)), "max_tokens": 24, "seed": number, "hetspec": {"mode": mode}}
            for number, mode in enumerate(MODES * 2)
        ]
        told = await asyncio.gather(*(client.post("/v1/completions", json=body) for body in bodies))
        assert (await client.post("/v1/completions", json={"prompt": "", "nonsense": 1})).status_code == 400
    await processes.until_nothing_is_held()
    return [answer.raise_for_status().json() | {"request": answer.headers["x-request-id"]} for answer in told]


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("prometheus")
