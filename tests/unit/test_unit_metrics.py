"""A unit's counters over a real `Work` stream: judged by what was sent, and by the answers themselves."""

from __future__ import annotations

import asyncio
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from hetspec.decoding.history import History
from hetspec.decoding.tree import TokenTree
from hetspec.rpc.channel import open_channel
from hetspec.rpc.contracts import VERIFY
from hetspec.rpc.messages import ErrorCode, PassResult, SessionUpdate, UnitError, VerifyItem, WorkTrace
from hetspec.rpc.server import PortTakenError, Server, ServerSettings
from hetspec.rpc.unit import LoadedUnit, UnitService
from hetspec.rpc.work import ShouldStop
from hetspec.v1 import common_pb2, verifier_pb2
from tests.fakes import FakeVerifier, no_chaos

NO_TREE, TREE = TokenTree(), TokenTree((5, 6), (-1, 0))
WEIGHTS = WorkTrace((4, 4), (1, 2, 3, 4), weight_bytes_read=1000, weight_reads=2)


class TracedVerifier(FakeVerifier):
    def run(self, items: Any, should_stop: ShouldStop) -> PassResult[Any]:
        if any(item.update.session.endswith("bad") for item in items):
            raise UnitError(ErrorCode.WEIGHTS_UNAVAILABLE, "gone")
        return PassResult(super().run(items, should_stop).items, WEIGHTS)


def opening(session: str, ids: tuple[int, ...] = (1,), tree: TokenTree = NO_TREE) -> VerifyItem:
    return VerifyItem(SessionUpdate(session, 1, 0, History().hash, append=ids), tree)


class Client:
    """Sends tasks one by one, and keeps the bytes of both directions as protobuf counts them."""

    def __init__(self, call: Any) -> None:
        self._call = call
        self.sent = self.received = 0
        self.timings: list[Any] = []

    async def task(self, *items: VerifyItem) -> Any:
        pb = verifier_pb2.VerifyTask(task_id=len(self.timings) + 1, items=[item.to_pb() for item in items])
        await self._call.write(verifier_pb2.VerifierRequest(task=pb))
        result = (await self._call.read()).result
        self.sent += len(pb.SerializeToString())
        self.received += len(result.SerializeToString())
        self.timings.append(result.timing)
        return result


@asynccontextmanager
async def unit() -> AsyncIterator[tuple[Server, Client, TracedVerifier]]:
    engine = TracedVerifier(no_chaos, lambda: None)
    identity = common_pb2.UnitIdentity(unit="verifier", model="toy", precision="int8", digest="d", instance="i")

    def describe() -> verifier_pb2.VerifierDescription:
        held = sum(len(session.ids) for session in engine.sessions.held.values())
        return verifier_pb2.VerifierDescription(
            identity=identity, sessions=len(engine.sessions.held), kv_held_tokens=held, kv_capacity_tokens=64
        )

    service = UnitService(VERIFY, lambda: LoadedUnit(engine, describe, lambda: None))
    server = Server(service, ServerSettings(grace_s=1, metrics_port=0))
    await server.start()
    try:
        async with open_channel(f"127.0.0.1:{server.port}") as channel:
            call = VERIFY.stub(channel).Work()
            await call.read()  # credits
            yield server, Client(call), engine
    finally:
        await server.stop()


async def scrape(server: Server) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """By sample and labels, `unit` left out, as read over HTTP."""
    text = await asyncio.to_thread(_read, f"http://127.0.0.1:{server.metrics_port}/metrics")
    samples: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(text):
        for name, labels, value, *_ in family.samples:
            key = tuple(sorted((k, v) for k, v in labels.items() if k != "unit"))
            samples.setdefault(name, {})[key] = value
    return samples


def _read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=5) as answer:
        told: bytes = answer.read()
    return told.decode()


async def test_counters_are_those_of_the_tasks_when_the_answer_is_there() -> None:
    async with unit() as (server, client, _):
        await client.task(opening("a", (1, 2, 3)), opening("b"))
        await client.task(opening("c"))
        await client.task(opening("d", tree=TREE))
        told = await scrape(server)
    assert told["hetspec_tasks_total"] == {
        (("kind", kind), ("outcome", "ok")): 1 for kind in ("prefill", "decode", "verify")
    }
    assert told["hetspec_task_items_sum"] == {
        (("kind", "prefill"),): 2,
        (("kind", "decode"),): 1,
        (("kind", "verify"),): 1,
    }
    assert told["hetspec_task_rows_sum"] == {(("kind", kind),): 4 for kind in ("prefill", "decode", "verify")}
    assert told["hetspec_weights_read_bytes_total"] == {(): 3000}
    assert told["hetspec_weight_reads_total"] == {(): 6}
    assert told["hetspec_unit_received_bytes_total"] == {(): client.sent}
    assert told["hetspec_unit_sent_bytes_total"] == {(): client.received}


async def test_times_are_those_that_the_answers_tell() -> None:
    async with unit() as (server, client, _):
        for name in ("a", "b", "c"):
            await client.task(opening(name))
        told = await scrape(server)
    compute_s = sum(timing.compute_ns for timing in client.timings) / 1e9
    queue_s = sum(timing.queue_ns for timing in client.timings) / 1e9
    assert told["hetspec_unit_busy_seconds_total"][()] == pytest.approx(compute_s, rel=1e-9)
    assert sum(told["hetspec_task_seconds_sum"].values()) == pytest.approx(compute_s, rel=1e-9)
    assert told["hetspec_queue_wait_seconds_sum"][()] == pytest.approx(queue_s, rel=1e-9)
    assert told["hetspec_queue_wait_seconds_count"][()] == 3


async def test_refusals_are_counted_by_code_of_items_and_of_tasks() -> None:
    async with unit() as (server, client, _):
        lost = VerifyItem(SessionUpdate("never", 1, 7, 1, append=(1,)))
        await client.task(opening("a"), lost)
        await client.task(opening("bad"))
        told = await scrape(server)
    assert told["hetspec_unit_refusals_total"] == {
        (("code", "session_lost"),): 1,
        (("code", "weights_unavailable"),): 1,
    }
    assert told["hetspec_tasks_total"][("kind", "decode"), ("outcome", "weights_unavailable")] == 1


async def test_gauges_tell_what_runs_waits_and_is_held_now() -> None:
    async with unit() as (server, client, engine):
        engine.gate.clear()
        asking = [asyncio.create_task(client.task(opening("a", (1, 2)))), asyncio.create_task(asyncio.sleep(0))]
        await asyncio.to_thread(engine.entered.wait, 5)
        told = await scrape(server)
        assert (told["hetspec_tasks_running"][()], told["hetspec_tasks_queued"][()]) == (1, 0)
        engine.gate.set()
        await asyncio.gather(*asking)
        told = await scrape(server)
        assert (told["hetspec_tasks_running"][()], told["hetspec_tasks_queued"][()]) == (0, 0)
        assert (told["hetspec_unit_sessions"][()], told["hetspec_kv_held_tokens"][()]) == (1, 2)
        assert told["hetspec_kv_capacity_tokens"][()] == 64
        (identity,) = told["hetspec_unit_info"]
        assert dict(identity) == {
            "model": "toy",
            "fingerprint": "",
            "precision": "int8",
            "digest": "d",
        }


async def test_taken_metrics_port_stops_the_start_with_a_line_that_names_the_setting() -> None:
    async with unit() as (server, _, _):
        service = UnitService(VERIFY, lambda: LoadedUnit(FakeVerifier(no_chaos, print), print, print))
        second = Server(service, ServerSettings(metrics_port=server.metrics_port))
        with pytest.raises(
            PortTakenError, match=f"HETSPEC_METRICS_PORT: .*:{server.metrics_port}: Address already in use"
        ):
            await second.start()
        await second.stop_without_drain()
