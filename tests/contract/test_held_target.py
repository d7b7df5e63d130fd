"""A drafter that holds the target: a verifier's contract beside its own, on one port and one engine thread."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from drafter.config import DrafterSettings
from drafter.held_target import held_target
from drafter.unit import load
from hetspec.decoding.sampling import NoiseKey, Sampling
from hetspec.decoding.tree import ROOT, TokenTree
from hetspec.rpc.channel import open_channel
from hetspec.rpc.contracts import DRAFT, PRE_VERIFY, VERIFY
from hetspec.rpc.messages import DraftItem, DraftPolicy, HiddenRows, VerifyItem
from hetspec.rpc.server import Server, ServerSettings
from hetspec.rpc.unit import LoadedUnit, Offer, UnitService
from hetspec.v1 import common_pb2, drafter_pb2, drafter_pb2_grpc, verifier_pb2, verifier_pb2_grpc
from tests.contract.streams import WorkStream, serving, update, weight_store
from tests.fakes import FakeDrafter, FakeVerifier, no_chaos
from tests.models import make_checkpoint
from tests.unit.test_unit_metrics import scrape
from verifier import unit as verifier_unit
from verifier.config import VerifierSettings

PROMPT = [30, 31, 32, 33, 30, 31]
TREE = TokenTree((7, 8, 7, 9), (ROOT, ROOT, 0, 2))
LOOKUP = DraftPolicy(8, 4, 1, (drafter_pb2.DRAFT_SOURCE_LOOKUP,))


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("target") / "model", "smollm")


@asynccontextmanager
async def drafter(address: str, **settings: Any) -> AsyncIterator[grpc.aio.Channel]:
    chosen = DrafterSettings(weight_store=address, **{"threads": 1, "weights_timeout_s": 30, **settings})
    async with serving(UnitService(DRAFT, lambda: load(chosen), beside=held_target(chosen))) as channel:
        yield channel


@asynccontextmanager
async def verifier(address: str, **settings: Any) -> AsyncIterator[grpc.aio.Channel]:
    chosen = VerifierSettings(weight_store=address, threads=2, **settings)
    async with serving(UnitService(VERIFY, lambda: verifier_unit.load(chosen))) as channel:
        yield channel


async def describe(stub: Any, channel: grpc.aio.Channel) -> Any:
    return await stub(channel).Describe(common_pb2.DescribeRequest())


async def rows_of_a_session(channel: grpc.aio.Channel) -> list[bytes]:
    """Of a prompt, a tree below it, and the tree below what was accepted of that."""
    stream = await WorkStream(VERIFY, channel).open()
    first = await stream.task(VerifyItem(update("s", [], PROMPT), TREE, HiddenRows.ALL))
    second = await stream.task(VerifyItem(update("s", PROMPT, [2, 4], [0, 2], TREE), TokenTree.chain([6, 1])))
    await stream.end()
    return [result.items[0].hidden for result in (first, second)]


@pytest.mark.parametrize("precision", ["int8", "float32"])
async def test_its_rows_are_the_verifiers_bit_for_bit(precision: str, target: Path) -> None:
    async with (
        weight_store(target.parent / "cache", target=target) as address,
        drafter(address, precision=precision, holds_target=True) as held,
        verifier(address, precision=precision) as own,
    ):
        rows = await rows_of_a_session(held)
        assert rows == await rows_of_a_session(own)
        assert all(np.frombuffer(row, "<f4").any() for row in rows)
        told, theirs = [await describe(verifier_pb2_grpc.VerifierStub, channel) for channel in (held, own)]
    assert told.identity.digest == theirs.identity.digest
    assert told.identity.fingerprint == theirs.identity.fingerprint
    assert (told.identity.unit, told.layers_resident, told.dram_budget_bytes) == ("drafter", told.layers, 0)


async def test_both_contracts_are_kept_on_one_port(target: Path) -> None:
    async with (
        weight_store(target.parent / "cache", target=target) as address,
        drafter(address, holds_target=True, max_context=64) as channel,
    ):
        found = await describe(drafter_pb2_grpc.DrafterStub, channel)
        held = await describe(verifier_pb2_grpc.VerifierStub, channel)
        assert (found.holds_target, held.max_context) == (True, 64)
        for name in ("", "hetspec.v1.Drafter", "hetspec.v1.Verifier"):
            reply = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service=name))
            assert reply.status == health_pb2.HealthCheckResponse.SERVING
        drafts, checks = await WorkStream(DRAFT, channel).open(), await WorkStream(VERIFY, channel).open()
        item = DraftItem(update("s", [], PROMPT), LOOKUP, Sampling(0), NoiseKey(0))
        assert (await drafts.task(item)).items[0].tree.tokens
        assert (await checks.task(VerifyItem(update("s", [], PROMPT), TREE))).items[0].rows == 1 + len(TREE)
        assert (await describe(verifier_pb2_grpc.VerifierStub, channel)).sessions == 1
        assert (await describe(drafter_pb2_grpc.DrafterStub, channel)).load.tasks == 2
        await checks.end()
        await drafts.end()
        async with asyncio.timeout(10):
            while (await describe(verifier_pb2_grpc.VerifierStub, channel)).kv_held_tokens:
                await asyncio.sleep(0.01)


async def test_unless_it_is_told_to_it_serves_drafts_alone(target: Path) -> None:
    async with weight_store(target.parent / "cache", target=target) as address, drafter(address) as channel:
        assert not (await describe(drafter_pb2_grpc.DrafterStub, channel)).holds_target
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await describe(verifier_pb2_grpc.VerifierStub, channel)
    assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_a_task_that_was_taken_back_in_vain_is_taken_back_by_the_next(target: Path) -> None:
    """At a higher epoch a session begins from what it was: the rows are those of a session that never went further."""
    async with (
        weight_store(target.parent / "cache", target=target) as address,
        drafter(address, holds_target=True) as channel,
    ):
        stream = await WorkStream(VERIFY, channel).open()
        await stream.task(VerifyItem(update("s", [], PROMPT)))
        await stream.task(VerifyItem(update("s", PROMPT, [1, 2, 3]), TREE))
        back = VerifyItem(update("s", PROMPT, [9], epoch=2, fork_of="s"), TREE)
        fresh = VerifyItem(update("t", [], [*PROMPT, 9]), TREE)
        taken_back, anew = (await stream.task(back, fresh)).items
        assert taken_back.hidden == anew.hidden
        assert (await describe(verifier_pb2_grpc.VerifierStub, channel)).sessions == 2
        await stream.end()


class Fakes:
    """A drafter and the target it holds, of a few lines each, as one service."""

    def __init__(self) -> None:
        self.drafter, self.target = FakeDrafter(no_chaos, print), FakeVerifier(no_chaos, print)
        draft = LoadedUnit(self.drafter, drafter_pb2.DrafterDescription, lambda: None)
        held = LoadedUnit(self.target, lambda: verifier_pb2.VerifierDescription(kv_held_tokens=7), lambda: None)
        service = UnitService(DRAFT, lambda: draft, beside=[Offer(PRE_VERIFY, lambda: held)])
        self.server = Server(service, ServerSettings(grace_s=5, metrics_port=0))

    @asynccontextmanager
    async def streams(self) -> AsyncIterator[tuple[WorkStream, WorkStream]]:
        await self.server.start()
        try:
            async with open_channel(f"127.0.0.1:{self.server.port}") as channel:
                yield await WorkStream(DRAFT, channel).open(), await WorkStream(VERIFY, channel).open()
        finally:
            await self.server.stop()


async def test_tasks_of_both_contracts_run_one_at_a_time_in_the_order_they_came_in() -> None:
    fakes = Fakes()
    async with fakes.streams() as (drafts, checks):
        fakes.target.gate.clear()
        check = asyncio.create_task(checks.task(VerifyItem(update("s", [], PROMPT), TREE)))
        await asyncio.to_thread(fakes.target.entered.wait, 5)
        draft = asyncio.create_task(drafts.task(DraftItem(update("s", [], PROMPT), LOOKUP, Sampling(0), NoiseKey(0))))
        await until_queued(fakes.server)
        assert not fakes.drafter.passes
        fakes.target.gate.set()
        await asyncio.gather(check, draft)
        told = await scrape(fakes.server)
        assert told["hetspec_tasks_total"] == {
            (("kind", kind), ("outcome", "ok")): 1 for kind in ("pre_verify", "draft")
        }
        assert told["hetspec_kv_held_tokens"][()] == 7
        await checks.end()
        await drafts.end()


async def until_queued(server: Server) -> None:
    async with asyncio.timeout(10):
        while (await scrape(server))["hetspec_tasks_queued"][()] != 1:
            await asyncio.sleep(0.01)


async def test_told_to_end_it_waits_for_the_streams_of_both() -> None:
    fakes = Fakes()
    await fakes.server.start()
    async with open_channel(f"127.0.0.1:{fakes.server.port}") as channel:
        calls = [DRAFT.stub(channel).Work(), VERIFY.stub(channel).Work()]
        for call in calls:
            assert (await call.read()).WhichOneof("message") == "credits"
        stopping = asyncio.create_task(fakes.server.stop())
        for call in calls:
            assert (await call.read()).WhichOneof("message") == "draining"
            assert not stopping.done()
            await call.done_writing()
            assert await call.read() is grpc.aio.EOF
        async with asyncio.timeout(2):
            await stopping
