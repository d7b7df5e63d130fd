"""Start-up, health and drain of a process."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from hetspec.rpc.channel import open_channel
from hetspec.rpc.server import PortTakenError, Server, ServerSettings
from hetspec.telemetry.profiler import Profiler
from hetspec.telemetry.registry import new_registry
from hetspec.v1 import profiler_pb2, profiler_pb2_grpc, weight_store_pb2, weight_store_pb2_grpc

NAME = "hetspec.v1.WeightStore"
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


class Store(weight_store_pb2_grpc.WeightStoreServicer):
    """A service that is ready, and drained, when the test says so."""

    name = "store"
    grpc_names = (NAME,)

    def __init__(self) -> None:
        self.registry = new_registry()
        self.profiler = Profiler(self.registry)
        self.may_start = asyncio.Event()
        self.may_end = asyncio.Event()
        self.closed = False

    def register(self, server: grpc.aio.Server) -> None:
        weight_store_pb2_grpc.add_WeightStoreServicer_to_server(self, server)

    async def start(self) -> None:
        await self.may_start.wait()

    async def drain(self) -> None:
        await self.may_end.wait()

    async def close(self) -> None:
        self.closed = True

    async def GetManifest(self, request: object, context: object) -> weight_store_pb2.Manifest:  # type: ignore[override]
        return weight_store_pb2.Manifest(name="toy")


async def health(channel: grpc.aio.Channel, service: str) -> int:
    request = health_pb2.HealthCheckRequest(service=service)
    return int((await health_pb2_grpc.HealthStub(channel).Check(request, timeout=5)).status)


async def test_health_says_not_serving_until_ready_and_again_while_draining() -> None:
    store = Store()
    server = Server(store, ServerSettings())
    starting = asyncio.create_task(server.start())
    while not server.port:
        await asyncio.sleep(0.001)
    async with open_channel(f"127.0.0.1:{server.port}") as channel:
        stub = weight_store_pb2_grpc.WeightStoreStub(channel)
        for service in ("", NAME):
            assert await health(channel, service) == NOT_SERVING
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.GetManifest(weight_store_pb2.GetManifestRequest(), timeout=5)
        assert (refused.value.code(), refused.value.details()) == (grpc.StatusCode.UNAVAILABLE, "store is not ready")

        store.may_start.set()
        await starting
        for service in ("", NAME):
            assert await health(channel, service) == SERVING
        assert (await stub.GetManifest(weight_store_pb2.GetManifestRequest(), timeout=5)).name == "toy"

        stopping = asyncio.create_task(server.stop())
        await asyncio.sleep(0)
        for service in ("", NAME):
            assert await health(channel, service) == NOT_SERVING
        store.may_end.set()
        await stopping
        assert store.closed


async def test_no_service_is_profiled_before_it_is_ready() -> None:
    store = Store()
    store.may_end.set()
    server = Server(store, ServerSettings())
    starting = asyncio.create_task(server.start())
    while not server.port:
        await asyncio.sleep(0.001)
    async with open_channel(f"127.0.0.1:{server.port}") as channel:
        profiler = profiler_pb2_grpc.ProfilerStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await profiler.Profile(profiler_pb2.ProfileRequest(seconds=1), timeout=5)
        assert (refused.value.code(), refused.value.details()) == (grpc.StatusCode.UNAVAILABLE, "store is not ready")
        store.may_start.set()
        await starting
        assert (await profiler.Profile(profiler_pb2.ProfileRequest(seconds=1), timeout=30)).sampler.name
    await server.stop()


async def test_drain_that_takes_longer_than_its_grace_is_cut() -> None:
    store = Store()
    store.may_start.set()
    server = Server(store, ServerSettings(grace_s=0.01))
    await server.start()
    await server.stop()
    assert store.closed


async def test_drain_that_is_told_to_hurry_is_cut() -> None:
    store = Store()
    store.may_start.set()
    server = Server(store, ServerSettings(grace_s=600))
    await server.start()
    stopping = asyncio.create_task(server.stop())
    await asyncio.sleep(0.05)
    assert not store.closed
    server.cut_drain()
    await asyncio.wait_for(stopping, 10)
    assert store.closed


async def test_reflection_lists_the_service() -> None:
    store = Store()
    store.may_start.set()
    store.may_end.set()
    server = Server(store, ServerSettings())
    await server.start()
    async with open_channel(f"127.0.0.1:{server.port}") as channel:
        call = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo()
        await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
        listed = {service.name for service in (await call.read()).list_services_response.service}
        await call.done_writing()
    assert {NAME, "grpc.health.v1.Health"} <= listed
    await server.stop()


async def test_taken_port_is_an_error_that_names_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        server = Server(Store(), ServerSettings(port=port))
        with pytest.raises(PortTakenError, match=f"cannot listen on 127.0.0.1:{port}"):
            await server.start()
        await server.stop_without_drain()


PROGRAM = """
import asyncio, sys
from hetspec.rpc.server import ServerSettings, StartError, run_server
from tests.unit.test_server import Store

class Ready(Store):
    async def start(self):
        if "broken" in sys.argv:
            raise StartError("the file is broken")
    async def drain(self):
        pass

async def make():
    return Ready()

sys.exit(run_server(asyncio.run(make()), ServerSettings(port=int(sys.argv[1]))))
"""


def start_process(*arguments: str) -> subprocess.Popen[str]:
    root = Path(__file__).parents[2]
    environment = os.environ | {"PYTHONPATH": f"{root / 'services'}:{root}"}
    command = [sys.executable, "-c", PROGRAM, *arguments]
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)


def test_taken_port_ends_the_process_with_one_line_and_exit_code_2() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = start_process(str(port))
        _, stderr = process.communicate(timeout=60)
    assert process.returncode == 2
    assert stderr == f"store: cannot listen on 127.0.0.1:{port}: taken, or not an address of this host\n"


def test_service_that_cannot_start_ends_the_process_with_one_line_and_exit_code_2() -> None:
    process = start_process("0", "broken")
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 2
    assert stderr.splitlines()[-1] == "store: the file is broken"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_drains_and_ends_the_process_with_exit_code_0(number: signal.Signals) -> None:
    process = start_process("0")
    assert process.stderr is not None
    assert json.loads(process.stderr.readline())["event"] == "ready"
    process.send_signal(number)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 0
    assert [json.loads(line)["event"] for line in stderr.splitlines()] == ["draining", "stopped"]
