"""The weight store's contract over a real connection."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
import pytest_asyncio
from grpc_health.v1 import health_pb2, health_pb2_grpc

import weight_store.store
from hetspec.model.checkpoint import open_checkpoint
from hetspec.model.manifest import Manifest
from hetspec.model.pack_writer import write_pack
from hetspec.rpc.channel import open_channel
from hetspec.rpc.server import Server, ServerSettings, StartError
from hetspec.v1 import weight_store_pb2 as pb
from hetspec.v1 import weight_store_pb2_grpc
from tests.models import make_checkpoint
from weight_store.servicer import CHUNK_BYTES, WeightStoreService
from weight_store.store import Store

CHECK_S = 0.05
SERVICES = Path(__file__).parents[2] / "services"


@dataclass
class Running:
    source: Path
    cache: Path
    store: Store
    server: Server
    stub: Any


@pytest_asyncio.fixture
async def running(tmp_path: Path) -> AsyncIterator[Running]:
    source, cache = make_checkpoint(tmp_path, "smollm", gguf=True), tmp_path / "cache"
    store = Store({"target": source}, cache)
    server = Server(WeightStoreService(store, CHECK_S), ServerSettings(grace_s=2))
    await server.start()
    async with open_channel(f"127.0.0.1:{server.port}") as channel:
        yield Running(source, cache, store, server, weight_store_pb2_grpc.WeightStoreStub(channel))
    await server.stop()


async def fails(call: Any, code: grpc.StatusCode, *named: str) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        async with asyncio.timeout(10):
            await call
    assert caught.value.code() == code
    for part in named:
        assert part in str(caught.value.details())


async def read(running: Running, lease: str, offset: int, length: int) -> list[bytes]:
    return [chunk.data async for chunk in running.stub.Read(pb.ReadRequest(lease=lease, offset=offset, length=length))]


async def lease(running: Running, precision: str = "int8") -> tuple[Any, pb.LeaseGrant]:
    call = running.stub.Lease(pb.LeaseRequest(role="target", precision=precision))
    return call, await call.read()


async def test_the_manifest_says_what_the_checkpoint_is(running: Running) -> None:
    checkpoint = open_checkpoint(running.source)
    answer = Manifest.from_pb(await running.stub.GetManifest(pb.GetManifestRequest(role="target")))
    assert answer == Manifest("target", checkpoint.fingerprint(), checkpoint.config, checkpoint.text)


async def test_a_role_that_is_not_served_is_not_found(running: Running) -> None:
    await fails(running.stub.GetManifest(pb.GetManifestRequest(role="draft")), grpc.StatusCode.NOT_FOUND, "draft")
    call = running.stub.Lease(pb.LeaseRequest(role="draft", precision="int8"))
    await fails(call.read(), grpc.StatusCode.NOT_FOUND, "draft")


async def test_an_unknown_precision_is_an_invalid_argument(running: Running) -> None:
    call = running.stub.Lease(pb.LeaseRequest(role="target", precision="int4"))
    await fails(call.read(), grpc.StatusCode.INVALID_ARGUMENT, "int4")


@pytest.mark.parametrize("precision", ["int8", "float32"])
async def test_reads_of_a_lease_are_the_packs_bytes(running: Running, precision: str) -> None:
    call, grant = await lease(running, precision)
    data = content(grant.path)
    assert len(data) == grant.bytes
    assert b"".join(await read(running, grant.lease, 0, grant.bytes)) == data
    assert b"".join(await read(running, grant.lease, 777, 4097)) == data[777 : 777 + 4097]
    assert await read(running, grant.lease, grant.bytes, 0) == []
    call.cancel()


async def test_long_reads_come_in_chunks(tmp_path: Path) -> None:
    source = make_checkpoint(tmp_path, "llama2", hidden_size=512, intermediate_size=1024)
    server = Server(WeightStoreService(Store({"target": source}, tmp_path)), ServerSettings(grace_s=1))
    await server.start()
    async with open_channel(f"127.0.0.1:{server.port}") as channel:
        running = Running(source, tmp_path, Store({}, tmp_path), server, weight_store_pb2_grpc.WeightStoreStub(channel))
        call, grant = await lease(running, "float32")
        chunks = await read(running, grant.lease, 0, grant.bytes)
        assert [len(chunk) for chunk in chunks[:-1]] == [CHUNK_BYTES] * (grant.bytes // CHUNK_BYTES)
        assert b"".join(chunks) == content(grant.path)
        call.cancel()
    await server.stop()


async def test_a_read_beyond_the_end_is_out_of_range(running: Running) -> None:
    call, grant = await lease(running)
    await fails(read(running, grant.lease, grant.bytes - 1, 2), grpc.StatusCode.OUT_OF_RANGE, str(grant.bytes))
    call.cancel()


async def test_a_read_without_a_lease_is_not_found(running: Running) -> None:
    await fails(read(running, "nobody", 0, 1), grpc.StatusCode.NOT_FOUND, "nobody")


async def test_a_cancelled_lease_is_not_in_force(running: Running) -> None:
    call, grant = await lease(running)
    call.cancel()
    async with asyncio.timeout(10):
        while running.store.leases:
            await asyncio.sleep(0.01)
    await fails(read(running, grant.lease, 0, 1), grpc.StatusCode.NOT_FOUND, grant.lease)


async def test_a_lease_ends_when_the_pack_is_written_to(running: Running) -> None:
    call, grant = await lease(running)
    flip_last_byte(Path(grant.path))
    await fails(call.read(), grpc.StatusCode.FAILED_PRECONDITION, "changed under its lease", grant.pack_hash)


async def test_a_lease_ends_when_the_pack_is_cut(running: Running) -> None:
    call, grant = await lease(running)
    os.truncate(grant.path, grant.bytes - 4096)
    await fails(call.read(), grpc.StatusCode.FAILED_PRECONDITION, "changed under its lease")


async def test_a_lease_ends_when_the_checkpoint_is_written_to_and_none_is_granted_after(running: Running) -> None:
    call, _ = await lease(running)
    flip_last_byte(running.source)
    await fails(call.read(), grpc.StatusCode.FAILED_PRECONDITION, running.source.name)
    call = running.stub.Lease(pb.LeaseRequest(role="target", precision="float32"))
    await fails(call.read(), grpc.StatusCode.FAILED_PRECONDITION, running.source.name)
    manifest = running.stub.GetManifest(pb.GetManifestRequest(role="target"))
    await fails(manifest, grpc.StatusCode.FAILED_PRECONDITION, running.source.name)


async def test_a_lease_survives_new_times_on_files_whose_contents_are_the_same(running: Running) -> None:
    call, grant = await lease(running)
    os.utime(grant.path, ns=(5, 5))
    os.utime(running.source, ns=(5, 5))
    ended = asyncio.ensure_future(call.read())
    await asyncio.sleep(6 * CHECK_S)
    assert not ended.done()
    assert len(await read(running, grant.lease, 0, 100)) == 1
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ended


async def test_a_damaged_pack_is_made_again_for_the_next_lease(running: Running) -> None:
    call, grant = await lease(running)
    sound = content(grant.path)
    flip_last_byte(Path(grant.path))
    await fails(call.read(), grpc.StatusCode.FAILED_PRECONDITION)
    call, again = await lease(running)
    assert again.pack_hash == grant.pack_hash
    assert content(again.path) == sound
    call.cancel()


async def test_no_pack_is_kept_of_a_checkpoint_that_changed_while_it_was_read(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_and_change(*arguments: Any) -> Path:
        path = write_pack(*arguments)
        flip_last_byte(running.source)
        return path

    monkeypatch.setattr(weight_store.store, "write_pack", write_and_change)
    call = running.stub.Lease(pb.LeaseRequest(role="target", precision="int8"))
    await fails(call.read(), grpc.StatusCode.FAILED_PRECONDITION, running.source.name)
    assert not list(running.cache.glob("*.pack"))


async def test_leases_end_as_unavailable_when_the_store_stops(running: Running) -> None:
    call, _ = await lease(running)
    stopping = asyncio.create_task(running.server.stop())
    await fails(call.read(), grpc.StatusCode.UNAVAILABLE)
    await stopping
    assert not running.store.leases


async def test_it_is_serving_once_its_checkpoints_are_open(running: Running) -> None:
    async with open_channel(f"127.0.0.1:{running.server.port}") as channel:
        request = health_pb2.HealthCheckRequest(service="hetspec.v1.WeightStore")
        answer = await health_pb2_grpc.HealthStub(channel).Check(request)
    assert answer.status == health_pb2.HealthCheckResponse.SERVING


async def test_a_bad_file_keeps_it_from_starting(tmp_path: Path) -> None:
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(b"GGUF\x03\0\0\0")
    server = Server(WeightStoreService(Store({"target": bad}, tmp_path)), ServerSettings())
    with pytest.raises(StartError, match=r"bad\.gguf.*truncated"):
        await server.start()
    await server.stop()


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"HETSPEC_TARGET": "bad.gguf"}, "bad.gguf"),
        ({"HETSPEC_TARGET": "nothing"}, "nothing"),
        ({"HETSPEC_PORT": "70000"}, "HETSPEC_PORT"),
        ({"HETSPEC_CACHE_DIR": "bad.gguf"}, "bad.gguf"),
    ],
)
def test_a_start_that_fails_says_why_in_one_line_and_exits_with_2(
    changes: dict[str, str], named: str, tmp_path: Path
) -> None:
    (tmp_path / "bad.gguf").write_bytes(b"not a model")
    settings = {"HETSPEC_TARGET": "bad.gguf", "HETSPEC_CACHE_DIR": "cache", "HETSPEC_PORT": "0", **changes}
    environment = {**os.environ, "PYTHONPATH": str(SERVICES), **settings}
    command = [sys.executable, "-m", "weight_store"]
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2
    lines = [line for line in ended.stderr.splitlines() if not line.startswith("{")]
    assert len(lines) == 1
    assert lines[0].startswith("weight_store: ")
    assert named in lines[0]


def content(path: str) -> bytes:
    return Path(path).read_bytes()


def flip_last_byte(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        last = file.read(1)[0]
        file.seek(-1, os.SEEK_END)
        file.write(bytes([last ^ 1]))
