"""The observe overlay: Prometheus in a container of its own finds every replica by name, and counts what they did."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.compose.stack import Stack, free_port, run

BINARY = shutil.which("prometheus")

pytestmark = [
    pytest.mark.soak,
    pytest.mark.compose,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(BINARY is None, reason="prometheus is not installed: its image is made of the binary"),
    pytest.mark.skipif(shutil.which("docker") is None, reason="no Docker engine"),
]

IMAGE = "hetspec-test-prometheus"
REPLICAS = {"verifier": 2, "drafter": 1, "sampler": 1}


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, port: int) -> Iterator[Stack]:
    make_image(tmp_path_factory.mktemp("image"))
    environ = {
        "HETSPEC_MODELS": str(tmp_path_factory.mktemp("models")),
        "HETSPEC_THREADS": "1",
        "HETSPEC_PROMETHEUS_IMAGE": IMAGE,
        "HETSPEC_PROMETHEUS_PORT": str(port),
    }
    made = Stack(environ, overlays=["observe"], services=["orchestrator", "prometheus"])
    made.down()
    try:
        made.build()
        made.up(**REPLICAS)
        yield made
    finally:
        made.down()
        run("docker", "image", "rm", IMAGE)
    assert made.leftovers() == []


def make_image(folder: Path) -> None:
    """This host's Prometheus, in an image as the official one is laid out: a program, and a folder of its user."""
    assert BINARY is not None
    shutil.copy(BINARY, folder / "prometheus")
    (folder / "Dockerfile").write_text(
        "FROM python:3.11-slim\n"
        "COPY prometheus /bin/prometheus\n"
        "RUN mkdir /prometheus && chown 65534:65534 /prometheus\n"
        "USER 65534\n"
    )
    run("docker", "build", "-t", IMAGE, str(folder))


@pytest.fixture
async def prometheus(stack: Stack, port: int) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
        yield client


async def query(client: httpx.AsyncClient, expression: str) -> list[tuple[dict[str, str], float]]:
    answer = (await client.get("/api/v1/query", params={"query": expression})).raise_for_status().json()
    return [(series["metric"], float(series["value"][1])) for series in answer["data"]["result"]]


async def until_up(client: httpx.AsyncClient, replicas: dict[str, int]) -> None:
    """Until so many of each service have been scraped."""
    expected = {"orchestrator": 1, "weight_store": 1, **replicas}
    async with asyncio.timeout(120):
        while True:
            try:
                up = await query(client, 'sum by (service) (up{job="hetspec"} == 1)')
            except httpx.TransportError:
                up = []
            if {labels["service"]: count for labels, count in up} == expected:
                return
            await asyncio.sleep(0.5)


async def test_every_replica_is_scraped_and_one_that_comes_later_too(
    stack: Stack, prometheus: httpx.AsyncClient
) -> None:
    await until_up(prometheus, REPLICAS)
    await asyncio.to_thread(stack.up, **REPLICAS | {"sampler": 2})
    await until_up(prometheus, REPLICAS | {"sampler": 2})


async def test_tokens_counted_are_those_that_were_answered(stack: Stack, prometheus: httpx.AsyncClient) -> None:
    await until_up(prometheus, REPLICAS | {"sampler": 2})
    body: dict[str, Any] = {"prompt": "One, two, three, one, two,", "max_tokens": 24, "temperature": 0}
    async with httpx.AsyncClient(base_url=stack.url, timeout=300) as client:
        answers = await asyncio.gather(*(client.post("/v1/completions", json=body | {"seed": n}) for n in range(6)))
    emitted = sum(answer.raise_for_status().json()["hetspec"]["emitted"] for answer in answers)
    async with asyncio.timeout(60):
        while [value for _, value in await query(prometheus, "sum(hetspec_generated_tokens_total)")] != [emitted]:
            await asyncio.sleep(0.5)
    busy = await query(prometheus, 'hetspec_unit_busy_seconds_total{unit="verifier"}')
    assert len(busy) == 2
    assert all(seconds > 0 for _, seconds in busy)  # sessions were spread over both


async def test_prometheus_runs_as_the_overlay_says(stack: Stack) -> None:
    (container,) = stack.containers("prometheus")
    (told,) = json.loads(run("docker", "inspect", container))
    assert told["HostConfig"]["ReadonlyRootfs"]
    assert told["Config"]["User"] == "65534:65534"
    assert told["HostConfig"]["CapDrop"] == ["ALL"]
    (published,) = (binding for bindings in told["HostConfig"]["PortBindings"].values() for binding in bindings)
    assert published["HostIp"] == "127.0.0.1"
