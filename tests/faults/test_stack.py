"""The five real services on the packaged model, over HTTP: what holds whatever clients and units do."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest

from deploy.local import process, readiness, settings
from deploy.local.launcher import Launcher
from deploy.local.process import RunFolder
from deploy.local.settings import Service
from hetspec.v1 import common_pb2, drafter_pb2_grpc, verifier_pb2_grpc
from tests.ports import free_ports

ROOT = Path(__file__).parents[2]
COMPLETIONS = "/v1/completions"
PROMPTS = (
    "One, two, three, four, one, two, three,",
    "def add(a, b):\n    return a + b\n\ndef subtract(a, b):\n    return",
    "The capital of France is",
    "🙂 Grüße aus Köln! Grüße aus",
)


@dataclass
class Stack:
    folder: RunFolder
    services: list[Service]
    launchers: list[Launcher] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://{self.services[-1].address}"

    def kill(self, name: str) -> None:
        record = self.folder.read(name)
        assert record is not None
        os.kill(record.pid, signal.SIGKILL)

    def up(self) -> None:
        self.launchers.append(Launcher(ROOT, self.folder, "", readiness.ready))
        self.launchers[-1].up(self.services)

    def down(self) -> None:
        process.stop(self.folder, self.folder.names(), 15)
        for launcher in self.launchers:
            for child in launcher._children.values():
                child.wait(10)

    async def held(self) -> tuple[int, int]:
        """KV positions and sessions, over verifier and drafter."""
        address = {service.name: service.address for service in self.services}
        tokens = sessions = 0
        for name, stub in (("verifier", verifier_pb2_grpc.VerifierStub), ("drafter", drafter_pb2_grpc.DrafterStub)):
            async with grpc.aio.insecure_channel(address[name]) as channel:
                told = await stub(channel).Describe(common_pb2.DescribeRequest())
                tokens, sessions = tokens + told.kv_held_tokens, sessions + told.sessions
        return tokens, sessions


@pytest.fixture(scope="module")
def stack(cache_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    *units, port = free_ports(5)
    environ = {f"HETSPEC_{name.upper()}": f"127.0.0.1:{p}" for name, p in zip(settings.UNITS, units, strict=True)}
    environ |= {"HETSPEC_PORT": str(port), "HETSPEC_METRICS_PORT": "0", "HETSPEC_THREADS": "1"}
    environ["HETSPEC_PREFIX_TOKENS"] = "0"
    environ["HETSPEC_CACHE_DIR"] = str(cache_dir)
    made = Stack(RunFolder(tmp_path_factory.mktemp("run")), settings.services(environ))
    try:
        made.up()
        yield made
    finally:
        made.down()


@pytest.fixture
async def client(stack: Stack) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=stack.url, timeout=120) as made:
        yield made


def body(prompt: str, mode: str = "tree", **fields: Any) -> dict[str, Any]:
    return {"prompt": prompt, "max_tokens": 16, "seed": 5, "hetspec": {"mode": mode}} | fields


async def streamed(client: httpx.AsyncClient, fields: dict[str, Any], begun: asyncio.Event | None = None) -> str:
    """The text of a stream; sets `begun` when there is some."""
    text = ""
    async with client.stream("POST", COMPLETIONS, json=fields | {"stream": True}) as answer:
        async for line in answer.aiter_lines():
            if line.startswith("data: {"):
                chunk = json.loads(line[6:])
                assert "error" not in chunk
                text += chunk["choices"][0]["text"]
                if begun is not None and text:
                    begun.set()
    return text


@pytest.mark.parametrize("temperature", [0, 0.8])
async def test_every_mode_says_the_same_streamed_or_not(client, temperature):
    for prompt in PROMPTS:
        plain = (await client.post(COMPLETIONS, json=body(prompt, "plain", temperature=temperature))).json()
        assert plain["usage"]["completion_tokens"] == plain["hetspec"]["rounds"]
        for mode in ("plain", "chain", "tree"):
            assert await streamed(client, body(prompt, mode, temperature=temperature)) == plain["choices"][0]["text"]


async def test_a_third_of_32_requests_cancelled_leaves_no_kv(stack, client):
    moments = random.Random(3)

    async def ask(number: int) -> int | None:
        fields = body(PROMPTS[number % 4], ("plain", "chain", "tree")[number % 3], stream=number % 2 == 0)
        asking = asyncio.create_task(client.post(COMPLETIONS, json=fields))
        if number % 3:
            return (await asking).status_code
        await asyncio.wait((asking,), timeout=moments.uniform(0, 4))
        asking.cancel()
        return None

    told = await asyncio.gather(*(ask(number) for number in range(32)))
    assert set(told) == {200, None}
    async with asyncio.timeout(20):
        while await stack.held() != (0, 0):
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("name", ["verifier", "drafter", "sampler"])
async def test_unit_killed_in_the_middle_changes_no_token(stack, client, name):
    fields = body(PROMPTS[2], temperature=0.8, max_tokens=48)
    undisturbed = await streamed(client, fields)
    begun = asyncio.Event()
    asking = asyncio.create_task(streamed(client, fields, begun))
    await begun.wait()
    stack.kill(name)
    assert not asking.done()
    await asyncio.to_thread(stack.up)
    assert await asking == undisturbed
