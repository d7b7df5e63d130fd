"""Servers for the clients: the real HTTP API over an engine, and ones that misbehave."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn

from orchestrator.__main__ import listen
from orchestrator.api.admission import Admission
from orchestrator.api.app import create_app
from orchestrator.config import OrchestratorSettings
from tests.contract.fake_engine import FakeEngine

HOST = "127.0.0.1"
_PATIENCE_S = 20.0


@contextmanager
def live(engine: Any, **settings: Any) -> Iterator[str]:
    """The URL of the orchestrator's HTTP server over `engine`, in a thread of its own."""
    server, listener, url = _server(engine, settings)
    thread = threading.Thread(target=asyncio.run, args=(server._serve(sockets=[listener]),))  # without signal handlers
    thread.start()
    try:
        yield url
    finally:
        server.should_exit = True
        thread.join()


@asynccontextmanager
async def served(engine: Any, **settings: Any) -> AsyncIterator[str]:
    """The same in this event loop."""
    server, listener, url = _server(engine, settings)
    serving = asyncio.create_task(server._serve(sockets=[listener]))
    try:
        yield url
    finally:
        server.should_exit = True
        await serving


def _server(engine: Any, settings: dict[str, Any]) -> tuple[uvicorn.Server, socket.socket, str]:
    chosen = OrchestratorSettings(**settings)
    app = create_app(engine, chosen, Admission(chosen.max_running, chosen.max_queued))
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, timeout_graceful_shutdown=1))
    listener = listen(HOST, 0)
    return server, listener, f"http://{HOST}:{listener.getsockname()[1]}"


@dataclass
class Raw:
    """A server that answers every connection with the same bytes. requests: what it was sent."""

    url: str
    requests: list[bytes] = field(default_factory=list)


@contextmanager
def raw(answer: bytes, *, then_hangs: bool = False) -> Iterator[Raw]:
    """then_hangs: the connection is left open after `answer`, until the client or the test ends."""
    ended = threading.Event()
    with socket.create_server((HOST, 0)) as listener:
        listener.settimeout(0.05)
        server = Raw(f"http://{HOST}:{listener.getsockname()[1]}")
        thread = threading.Thread(target=_serve, args=(listener, server, answer, ended, then_hangs))
        thread.start()
        try:
            yield server
        finally:
            ended.set()
            thread.join()


def _serve(listener: socket.socket, server: Raw, answer: bytes, ended: threading.Event, then_hangs: bool) -> None:
    while not ended.is_set():
        try:
            connection, _ = listener.accept()
        except TimeoutError:
            continue
        with connection:
            server.requests.append(_request(connection))
            connection.sendall(answer)
            if then_hangs:
                ended.wait()


def _request(connection: socket.socket) -> bytes:
    """Its body."""
    told = b""
    while b"\r\n\r\n" not in told:
        told += connection.recv(65536)
    head, _, body = told.partition(b"\r\n\r\n")
    lengths = [line.split(b":")[1] for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
    while len(body) < sum(map(int, lengths)):
        body += connection.recv(65536)
    return body


def response(body: bytes, kind: str = "application/json", status: str = "200 OK", headers: str = "") -> bytes:
    """`raw` closes the connection behind it, and says so: a client must not send its next request there."""
    about = f"connection: close\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n{headers}"
    return f"HTTP/1.1 {status}\r\n{about}\r\n".encode() + body


def events(*data: str) -> bytes:
    """A stream of these events that ends with the connection."""
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
    return head + "".join(f"data: {each}\n\n" for each in data).encode()


def prompts(engine: FakeEngine) -> list[str]:
    """As the engine got them."""
    told = (b"".join(engine.text.vocabulary.token_bytes(id_) for id_ in r.prompt_ids) for r in engine.requests)
    return [prompt.decode() for prompt in told]


def nothing_open(engine: FakeEngine) -> None:
    """Returns when the engine holds nothing of any request."""
    deadline = time.monotonic() + _PATIENCE_S
    while engine.open:
        assert time.monotonic() < deadline, "a request is still open"
        time.sleep(0.01)
