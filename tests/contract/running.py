"""The HTTP server at a port of its own, in the test's event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from orchestrator.__main__ import DrainingServer, listen, server_config
from orchestrator.api.admission import Admission
from orchestrator.api.app import create_app
from orchestrator.config import OrchestratorSettings
from orchestrator.engine.request import Emission, GenerationRequest
from tests.contract.fake_engine import Step, byte_level_text, tokens

CHAT = "/v1/chat/completions"
HELLO: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}]}
TEXT = byte_level_text()


@dataclass
class Running:
    server: DrainingServer
    admission: Admission
    client: httpx.AsyncClient
    url: str
    port: int


@asynccontextmanager
async def serve(engine: Any, *, verify: Any = True, **fields: Any) -> AsyncIterator[Running]:
    """fields: of OrchestratorSettings. verify: what the client trusts, with TLS."""
    settings = OrchestratorSettings(**fields)
    admission = Admission(settings.max_running, settings.max_queued)
    config = server_config(create_app(engine, settings, admission), settings)
    config.timeout_graceful_shutdown = 1
    server = DrainingServer(config, admission, settings.drain_s, settings.certificate)
    listener = listen("127.0.0.1", 0)
    port = listener.getsockname()[1]
    url = f"{'https' if settings.tls_cert else 'http'}://127.0.0.1:{port}"
    serving = asyncio.create_task(server._serve(sockets=[listener]))  # without signal handlers
    try:
        async with httpx.AsyncClient(base_url=url, timeout=20, verify=verify) as client:
            yield Running(server, admission, client, url, port)
    finally:
        server.should_exit = True
        await serving


class Gated:
    """Says one token at once where `early`, the rest when `gate` opens."""

    def __init__(self, early: bool) -> None:
        self._early = early
        self.gate = asyncio.Event()
        self.started = asyncio.Event()

    def __call__(self, request: GenerationRequest) -> Iterable[Step]:
        self.started.set()
        if self._early:
            yield Emission("a", tokens(TEXT, "a"), None)
        yield self.gate
        yield Emission("b", tokens(TEXT, "b"), "stop")


async def wait_for(condition: Any) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.01)


async def raw(port: int, request: bytes, *, ends: bool = True) -> tuple[int, dict[str, str], bytes]:
    """Bytes as they are, over a bare connection: status, headers, body. ends: no more will come."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        await writer.drain()
        if ends:
            writer.write_eof()
        async with asyncio.timeout(10):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            status, *lines = head.strip().split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            body = await reader.readexactly(int(headers.get("content-length", "0")))
        return int(status.split()[1]), headers, body
    finally:
        writer.close()
        await writer.wait_closed()
