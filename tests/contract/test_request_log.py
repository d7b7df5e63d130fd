"""One line of log a request, and its id from the client's header down to a unit's own log."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from hetspec.rpc.contracts import VERIFY
from hetspec.rpc.logs import JsonLines
from hetspec.rpc.messages import PassResult
from hetspec.rpc.work import ShouldStop
from orchestrator.api.admission import Admission
from orchestrator.api.app import create_app
from orchestrator.config import OrchestratorSettings
from tests.fakes import FakeUnit, FakeVerifier, World

BODY = {"prompt": [2, 3, 4], "max_tokens": 6, "hetspec": {"mode": "tree"}}


class Clumsy(FakeVerifier):
    """Fails by a bug of its own, the first time."""

    failed = False

    def run(self, items: Any, should_stop: ShouldStop) -> PassResult[Any]:
        if not self.failed:
            self.failed = True
            raise RuntimeError("a bug")
        return super().run(items, should_stop)


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """What the services write in this process."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines("test"))
    logger = logging.getLogger("hetspec")
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    yield stream
    logger.removeHandler(handler)
    logger.setLevel(logging.NOTSET)


def events(log: io.StringIO, name: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    return [line for line in lines if line["event"] == name]


@asynccontextmanager
async def serving(world: World) -> AsyncIterator[httpx.AsyncClient]:
    async with world:
        app = create_app(world.engine, OrchestratorSettings(), Admission(8, 8))
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test", timeout=60) as client:
            yield client


async def test_line_tells_what_the_answer_tells(log: io.StringIO) -> None:
    async with serving(World()) as client:
        answer = await client.post("/v1/completions", json=BODY)
    (line,) = events(log, "request")
    told = answer.json()["hetspec"]
    assert line["request"] == answer.headers["x-request-id"]
    assert (line["method"], line["path"], line["status"]) == ("POST", "/v1/completions", 200)
    assert (line["mode"], line["rounds"], line["tokens"]) == ("tree", told["rounds"], told["emitted"])
    assert (line["prompt_tokens"], line["accepted"]) == (3, told["accepted"])
    assert line["outcome"] == answer.json()["choices"][0]["finish_reason"]
    assert 0 < line["admission_wait_s"] < line["first_token_s"] < line["duration_s"]


async def test_stream_has_its_line_when_it_has_ended(log: io.StringIO) -> None:
    async with serving(World()) as client:
        answer = await client.post("/v1/completions", json=BODY | {"stream": True})
    (line,) = events(log, "request")
    assert line["request"] == answer.headers["x-request-id"]
    assert (line["status"], line["tokens"]) == (200, 6)


async def test_refused_request_has_an_id_and_a_line_too(log: io.StringIO) -> None:
    async with serving(World()) as client:
        answer = await client.post("/v1/completions", json=BODY | {"max_tokens": -1})
    (line,) = events(log, "request")
    assert (line["status"], line["request"]) == (400, answer.headers["x-request-id"])


async def test_probes_are_logged_at_the_level_debug(log: io.StringIO) -> None:
    async with serving(World()) as client:
        for path in ("/healthz", "/readyz", "/metrics"):
            await client.get(path)
    assert [line["level"] for line in events(log, "request")] == ["debug"] * 3


@pytest.mark.parametrize("given", ["a", "3f2b-77_x.9", "A" * 64])
async def test_sane_id_of_the_client_is_kept(given: str) -> None:
    async with serving(World()) as client:
        answer = await client.get("/healthz", headers={"x-request-id": given})
    assert answer.headers["x-request-id"] == given


@pytest.mark.parametrize("given", ["", "A" * 65, "two words", 'a"b', "a/b", "a\tb"])
async def test_other_ids_are_replaced(given: str) -> None:
    async with serving(World()) as client:
        answer = await client.get("/healthz", headers={"x-request-id": given})
    assert answer.headers["x-request-id"] not in ("", given)


async def test_units_log_and_the_orchestrators_name_the_request_that_a_unit_failed(log: io.StringIO) -> None:
    async with serving(World(verifiers=[FakeUnit(VERIFY, Clumsy)])) as client:
        answer = await client.post("/v1/completions", json=BODY, headers={"x-request-id": "mine"})
    assert answer.status_code == 200
    (failed,) = events(log, "engine failed")
    (session,) = failed["sessions"]
    assert session.endswith("/mine")
    (told,) = events(log, "unit failed a session")
    assert told["request"] == "mine"
