"""The reading side of the weight store: the same bytes on every path, and typed errors when they cannot be had."""

from __future__ import annotations

import asyncio
import contextlib
import mmap
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from hetspec.model.checkpoint import open_checkpoint
from hetspec.model.cut import Cut
from hetspec.model.lease import ReadCutError
from hetspec.model.pack import PackLayout
from hetspec.model.transformer import Span, Transformer
from hetspec.model.weights import (
    RoleMissingError,
    WeightsChangedError,
    WeightSource,
    WeightsUnavailableError,
    read_manifest,
)
from hetspec.rpc.server import Server, ServerSettings
from tests.models import make_checkpoint
from weight_store.servicer import WeightStoreService
from weight_store.store import Store

PATHS: dict[str, dict[str, bool]] = {"mapped": {}, "direct": {"direct": True}, "remote": {"remote": True}}


class StoreThread:
    """A weight store on a loop of its own, which can be stopped and started again on the same port."""

    def __init__(self, target: Path, cache: Path) -> None:
        self.target, self.cache, self.port = target, cache, 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._server: Server | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        self._run(self._start())

    async def _start(self) -> None:
        service = WeightStoreService(Store({"target": self.target}, self.cache), check_interval_s=0.05)
        self._server = Server(service, ServerSettings(port=self.port, grace_s=1))
        await self._server.start()
        self.port = self._server.port

    def stop(self) -> None:
        if self._server is not None:
            self._run(self._server.stop())
            self._server = None

    def restart(self) -> None:
        self.stop()
        self.start()

    def close(self) -> None:
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(30)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StoreThread]:
    store = StoreThread(make_checkpoint(tmp_path, "qwen3", gguf=True), tmp_path / "cache")
    store.start()
    yield store
    store.close()


@contextlib.contextmanager
def source(store: StoreThread, timeout_s: float = 10, **how: bool) -> Iterator[WeightSource]:
    weights = WeightSource.open(store.address, "target", "int8", timeout_s, **how)
    try:
        yield weights
    finally:
        weights.close()


def pack_path(store: StoreThread) -> Path:
    return next(store.cache.glob("*-int8-*.pack"))


def read(weights: WeightSource, offset: int, length: int) -> bytes:
    buffer = mmap.mmap(-1, length)  # page-aligned, as direct reads need
    weights.read_into(offset, memoryview(buffer))
    return bytes(buffer)


def wait_until(condition: Any) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def refused(weights: WeightSource) -> bool:
    try:
        weights.check()
    except WeightsChangedError:
        return True
    return False


@pytest.mark.parametrize("how", PATHS.values(), ids=PATHS)
def test_every_path_reads_the_packs_bytes(how: dict[str, bool], store: StoreThread) -> None:
    with source(store, **how) as weights:
        data = pack_path(store).read_bytes()
        assert weights.layout == PackLayout.of(weights.manifest.config, "int8")
        for offset, length in weights.layout.segments.values():
            assert read(weights, offset, length) == data[offset : offset + length]


@pytest.mark.parametrize("how", PATHS.values(), ids=PATHS)
def test_reads_are_counted(how: dict[str, bool], store: StoreThread) -> None:
    with source(store, **how) as weights:
        assert (weights.reads, weights.bytes_read) == (0, 0)
        read(weights, 4096, 8192)
        read(weights, 0, 4096)
        assert (weights.reads, weights.bytes_read) == (2, 12288)


def test_only_a_pack_on_this_host_that_goes_through_the_page_cache_is_mapped(store: StoreThread) -> None:
    with source(store) as weights:
        mapped = weights.map()
        assert mapped is not None
        assert not mapped.flags.writeable
        assert mapped.tobytes() == pack_path(store).read_bytes()
    assert mapped.tobytes() == pack_path(store).read_bytes()
    for how in ("direct", "remote"):
        with source(store, **PATHS[how]) as weights:
            assert weights.map() is None


@pytest.mark.parametrize("how", PATHS.values(), ids=PATHS)
@pytest.mark.parametrize(("from_end", "length"), [(4095, 4096), (0, 1)])
def test_a_read_beyond_the_end_is_a_value_error(
    how: dict[str, bool], from_end: int, length: int, store: StoreThread
) -> None:
    with source(store, **how) as weights, pytest.raises(ValueError, match=str(weights.layout.bytes)):
        read(weights, weights.layout.bytes - from_end, length)


@pytest.mark.parametrize(("offset", "length"), [(1, 4096), (4096, 100)])
def test_a_direct_read_that_is_not_aligned_is_a_value_error(offset: int, length: int, store: StoreThread) -> None:
    with source(store, direct=True) as weights, pytest.raises(ValueError, match="multiples of 4096"):
        read(weights, offset, length)


@pytest.mark.parametrize("how", PATHS.values(), ids=PATHS)
def test_threads_may_read_at_once(how: dict[str, bool], store: StoreThread) -> None:
    with source(store, **how) as weights, ThreadPoolExecutor(4) as threads:
        data = pack_path(store).read_bytes()
        spans = [(4096 * i, 4096 * (1 + i % 5)) for i in range(20)]
        for (offset, length), found in zip(spans, threads.map(lambda s: read(weights, *s), spans), strict=True):
            assert found == data[offset : offset + length]
        assert weights.reads == len(spans)


@pytest.mark.parametrize("how", PATHS.values(), ids=PATHS)
def test_a_pack_written_to_under_the_lease_is_refused(how: dict[str, bool], store: StoreThread) -> None:
    with source(store, **how) as weights:
        with pack_path(store).open("r+b") as file:
            file.seek(-1, os.SEEK_END)
            file.write(b"\x01")
        wait_until(lambda: refused(weights))
        with pytest.raises(WeightsChangedError, match="changed"):
            read(weights, 0, 4096)
        with pytest.raises(WeightsChangedError, match="changed"):
            weights.map()


def test_a_local_read_sees_the_change_before_the_store_does(store: StoreThread) -> None:
    with source(store) as weights:
        store.stop()
        with pack_path(store).open("r+b") as file:
            file.seek(-1, os.SEEK_END)
            file.write(b"\x01")
        with pytest.raises(WeightsChangedError, match="changed under its lease"):
            read(weights, 0, 4096)


def test_new_times_on_the_same_bytes_are_accepted(store: StoreThread) -> None:
    with source(store) as weights:
        os.utime(pack_path(store), ns=(7, 7))
        assert read(weights, 0, 4096) == pack_path(store).read_bytes()[:4096]


def test_local_reads_go_on_while_the_store_is_away(store: StoreThread) -> None:
    with source(store) as weights:
        store.stop()
        assert read(weights, 0, 4096) == pack_path(store).read_bytes()[:4096]


def test_a_remote_read_waits_for_the_store_to_come_back(store: StoreThread) -> None:
    with source(store, remote=True) as weights, ThreadPoolExecutor(1) as thread:
        store.stop()
        reading = thread.submit(read, weights, 0, 8192)
        time.sleep(0.3)
        assert not reading.done()
        store.start()
        assert reading.result(10) == pack_path(store).read_bytes()[:8192]


def test_a_remote_read_that_nobody_waits_for_ends_at_once_though_the_store_is_away(store: StoreThread) -> None:
    with source(store, 60, remote=True) as weights, ThreadPoolExecutor(1) as thread:
        store.stop()
        cut = Cut()
        reading = thread.submit(weights.read_into, 0, memoryview(bytearray(8192)), cut)
        time.sleep(0.2)
        assert not reading.done()
        cut.tell()
        with pytest.raises(ReadCutError):
            reading.result(5)


def test_a_pass_whose_layers_stream_goes_on_when_the_store_comes_back(store: StoreThread) -> None:
    """The store goes away before every layer in turn; the rows are those of a pass that nothing disturbed."""
    store.target = make_checkpoint(store.cache.parent / "deep", "qwen3", gguf=True, num_hidden_layers=4)
    store.restart()
    with source(store, 20, remote=True) as weights:
        size = weights.layout.segments["layers.0"].bytes
        model = Transformer(weights, threads=1, max_rows=64, max_context=64, kv_capacity_tokens=512, budget_bytes=size)
        expected, _ = model.run([Span(model.new_cache(), [5, 6, 7])])
        for gone_at in range(4):
            looks = iter(range(100))
            rows, _ = model.run(
                [Span(model.new_cache(), [5, 6, 7])], lambda at=gone_at, n=looks: next(n) == at and store.restart()
            )
            assert rows.tobytes() == expected.tobytes()
        model.close()


def test_a_remote_read_gives_up_when_the_store_stays_away(store: StoreThread) -> None:
    with source(store, 0.5, remote=True) as weights:
        store.stop()
        with pytest.raises(WeightsUnavailableError, match=store.address):
            read(weights, 0, 4096)


@pytest.mark.parametrize("how", PATHS.values(), ids=PATHS)
def test_a_store_that_comes_back_with_another_model_is_refused(
    how: dict[str, bool], store: StoreThread, tmp_path: Path
) -> None:
    with source(store, **how) as weights:
        store.stop()
        store.target = make_checkpoint(tmp_path / "other", "qwen3", gguf=True, seed=1)
        store.start()
        wait_until(lambda: refused(weights))
        with pytest.raises(WeightsChangedError, match=weights.pack_hash):
            read(weights, 0, 4096)


def test_opening_waits_for_a_store_that_is_still_to_start(store: StoreThread) -> None:
    store.stop()
    with ThreadPoolExecutor(1) as thread:
        opening = thread.submit(WeightSource.open, store.address, "target", "float32", 10)
        time.sleep(0.3)
        assert not opening.done()
        store.start()
        weights = opening.result(10)
        assert weights.layout.precision == "float32"
        weights.close()


def test_opening_gives_up_when_there_is_no_store(store: StoreThread) -> None:
    store.stop()
    with pytest.raises(WeightsUnavailableError, match=store.address):
        WeightSource.open(store.address, "target", "int8", 0.3)


@pytest.mark.parametrize(("role", "precision", "named"), [("draft", "int8", "draft"), ("target", "int4", "int4")])
def test_what_the_store_does_not_serve_is_refused_at_once(
    role: str, precision: str, named: str, store: StoreThread
) -> None:
    with pytest.raises(WeightsUnavailableError, match=named):
        WeightSource.open(store.address, role, precision, 60)


def test_a_manifest_can_be_read_without_a_lease(store: StoreThread) -> None:
    checkpoint = open_checkpoint(store.target)
    manifest = read_manifest(store.address, "target", 10)
    assert (manifest.config, manifest.text) == (checkpoint.config, checkpoint.text)
    assert manifest.fingerprint == checkpoint.fingerprint()
    assert not list(store.cache.glob("*.pack"))


def test_a_role_that_is_not_served_has_an_error_of_its_own(store: StoreThread) -> None:
    with pytest.raises(RoleMissingError, match="draft"):
        read_manifest(store.address, "draft", 60)
    with pytest.raises(RoleMissingError, match="draft"):
        WeightSource.open(store.address, "draft", "int8", 60)


def test_closing_gives_the_lease_back_and_leaves_no_thread(store: StoreThread) -> None:
    before = set(threading.enumerate())
    with source(store):
        assert "weights-lease" in {thread.name for thread in set(threading.enumerate()) - before}
    assert "weights-lease" not in {thread.name for thread in set(threading.enumerate()) - before}
