"""The probes of a container: exit codes as its service's state has it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1._async import HealthServicer

from hetspec.rpc import probe
from orchestrator import probe as http_probe

Status = health_pb2.HealthCheckResponse


@asynccontextmanager
async def answering(line: str) -> AsyncIterator[int]:
    """The port of an HTTP server that says one thing."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"GET /readyz HTTP/1.1\r\n")
        writer.write(f"{line}\r\nContent-Length: 0\r\n\r\n".encode())
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(answer, "127.0.0.1") as server:
        yield server.sockets[0].getsockname()[1]


@pytest.mark.parametrize(("status", "code"), [(Status.SERVING, 0), (Status.NOT_SERVING, 1)])
async def test_grpc_probe_tells_whether_the_service_serves(
    status: Status.ServingStatus.ValueType, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, health = grpc.aio.server(), HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(health, server)
    await health.set("", status)
    monkeypatch.setenv("HETSPEC_PORT", str(server.add_insecure_port("127.0.0.1:0")))
    await server.start()
    try:
        assert await asyncio.to_thread(probe.main) == code
    finally:
        await server.stop(None)


@pytest.mark.parametrize(
    ("line", "code"), [("HTTP/1.1 200 OK", 0), ("HTTP/1.1 503 Service Unavailable", 1), ("nonsense", 1)]
)
async def test_http_probe_tells_whether_the_orchestrator_is_ready(
    line: str, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with answering(line) as port:
        monkeypatch.setenv("HETSPEC_PORT", str(port))
        assert await asyncio.to_thread(http_probe.main) == code


@pytest.mark.parametrize("main", [probe.main, http_probe.main])
def test_probe_of_a_port_where_nobody_listens_fails(
    main: object, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
    monkeypatch.setenv("HETSPEC_PORT", str(port))
    assert callable(main)
    assert main() == 1
    assert capsys.readouterr().err.count("\n") == 1
