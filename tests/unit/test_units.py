"""Unit clients over real connections: passes shared, cancels in band, deaths noticed, replicas found and chosen."""

from __future__ import annotations

import asyncio
import gc
import random
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hetspec.decoding.history import History
from hetspec.rpc.contracts import DRAFT, VERIFY
from hetspec.rpc.messages import ErrorCode, HiddenStates, SessionUpdate, UnitError, VerifyItem
from hetspec.v1 import common_pb2, verifier_pb2, verifier_pb2_grpc
from orchestrator.policies.batching import PassLimits
from orchestrator.units.batcher import Served
from orchestrator.units.errors import Nonsense, NoReplica, UnitLost
from orchestrator.units.replica import Replica
from orchestrator.units.replica_set import ReplicaSet
from orchestrator.units.resolve import parse_addresses, resolve
from orchestrator.units.settings import LinkSettings, ReplicaSettings
from tests import toy
from tests.fakes import FINGERPRINT, FakeDrafter, FakeUnit, FakeVerifier

Verifiers = ReplicaSet[VerifyItem, HiddenStates]
VerifierReplica = Replica[VerifyItem, HiddenStates]

FAST = ReplicaSettings(
    LinkSettings(connect_timeout_s=1.0, task_timeout_s=5.0), resolve_every_s=0.05, backoff_s=(0.01, 0.05), wait_s=10.0
)
IMPATIENT = ReplicaSettings(
    LinkSettings(connect_timeout_s=1.0, task_timeout_s=0.1, slack_s=0.05), backoff_s=(0.01, 0.05), wait_s=0.2
)


def item(session: str, *ids: int) -> VerifyItem:
    return VerifyItem(SessionUpdate(session, 1, 0, History().hash, append=ids or (1,)))


def verifier(**options: Any) -> FakeUnit:
    return FakeUnit(VERIFY, FakeVerifier, **options)


@asynccontextmanager
async def replicas_of(*units: Any, how: ReplicaSettings = FAST, max_rows: int = 64) -> AsyncIterator[Verifiers]:
    for unit in units:
        await unit.start()
    addresses = ",".join(unit.address for unit in units)
    replicas = ReplicaSet(VERIFY, addresses, lambda _: PassLimits(max_rows, max_rows), how)
    replicas.start()
    try:
        async with asyncio.timeout(10):
            while len(replicas.replicas) < len(units):
                await asyncio.sleep(0.005)
        yield replicas
    finally:
        await replicas.close()
        for unit in units:
            await unit.close()


async def submit_all(replica: VerifierReplica, items: list[VerifyItem]) -> list[asyncio.Task[Served[HiddenStates]]]:
    """Submitted in the same turn of the loop, one task each."""
    tasks = [asyncio.create_task(replica.submit(each, 1)) for each in items]
    await asyncio.sleep(0)
    return tasks


async def entered(unit: FakeUnit) -> None:
    await asyncio.to_thread(unit.engine.entered.wait, 10)
    unit.engine.entered.clear()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.005)


async def test_items_that_wait_at_the_same_time_share_a_pass() -> None:
    unit = verifier()
    async with replicas_of(unit) as replicas:
        replica = await replicas.pick()
        unit.engine.gate.clear()
        first = await submit_all(replica, [item("0")])
        await entered(unit)
        rest = await submit_all(replica, [item(str(n), n) for n in range(1, 8)])
        unit.engine.gate.set()
        served = await asyncio.gather(*first, *rest)
        assert unit.engine.passes == [1, 7]
        assert [each.value.data for each in served[1:]] == [toy.hidden_row([n]).tobytes() for n in range(1, 8)]


async def test_items_of_the_same_turn_share_the_first_pass_too() -> None:
    unit = verifier()
    async with replicas_of(unit) as replicas:
        await asyncio.gather(*await submit_all(await replicas.pick(), [item(str(n)) for n in range(5)]))
        assert unit.engine.passes == [5]


async def test_pass_holds_no_more_rows_than_the_unit_takes() -> None:
    unit = verifier()
    async with replicas_of(unit, max_rows=3) as replicas:
        await asyncio.gather(*await submit_all(await replicas.pick(), [item(str(n)) for n in range(7)]))
        assert unit.engine.passes == [3, 3, 1]


async def test_compute_time_of_a_pass_is_shared_by_rows() -> None:
    unit = verifier()
    async with replicas_of(unit) as replicas:
        replica = await replicas.pick()
        small, large = await asyncio.gather(replica.submit(item("a"), 1), replica.submit(item("b"), 3))
        assert large.compute_ns == pytest.approx(3 * small.compute_ns, abs=3)
        assert small.busy_ns == large.busy_ns >= small.compute_ns + large.compute_ns


async def test_pass_nobody_waits_for_is_cancelled_on_the_unit_and_the_next_one_goes() -> None:
    unit = verifier()
    async with replicas_of(unit) as replicas:
        replica = await replicas.pick()
        unit.engine.gate.clear()
        abandoned = await submit_all(replica, [item("a"), item("b")])
        await entered(unit)
        for task in abandoned:
            task.cancel()
        waits = await submit_all(replica, [item("c")])
        await entered(unit)  # with the gate still closed: the first pass was stopped
        unit.engine.gate.set()
        assert (await waits[0]).value.rows == 1
        assert {name.partition("/")[2] for name in unit.held} == {"c"}


async def test_pass_goes_on_while_somebody_waits_for_it() -> None:
    unit = verifier()
    async with replicas_of(unit) as replicas:
        unit.engine.gate.clear()
        leaves, stays = await submit_all(await replicas.pick(), [item("a"), item("b")])
        await entered(unit)
        leaves.cancel()
        await asyncio.sleep(0.01)
        unit.engine.gate.set()
        assert (await stays).value.rows == 1


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=40), st.integers(0, 2**32))
@settings(max_examples=10)
def test_credits_are_never_exceeded_whatever_is_cancelled(steps: list[tuple[int, bool]], seed: int) -> None:
    async def scenario() -> None:
        unit = verifier()
        async with replicas_of(unit) as replicas:
            replica = await replicas.pick()
            chance = random.Random(seed)
            running: list[asyncio.Task[Any]] = []
            for name, (pause, cancels) in enumerate(steps):
                running += await submit_all(replica, [item(f"{name}")])
                await asyncio.sleep(pause * 0.0005)
                if cancels:
                    chance.choice(running).cancel()
            results = await asyncio.gather(*running, return_exceptions=True)
            # A task sent without a credit would have been answered OUT_OF_CREDITS.
            assert all(isinstance(result, Served | asyncio.CancelledError) for result in results)
            assert (await replica.submit(item("last"), 1)).value.rows == 1

    asyncio.run(scenario())


async def test_death_of_a_unit_fails_what_waits_and_another_incarnation_is_found() -> None:
    unit = verifier()
    async with replicas_of(unit) as replicas:
        replica = await replicas.pick()
        unit.engine.gate.clear()
        flying = await submit_all(replica, [item("a")])
        await entered(unit)
        waiting = await submit_all(replica, [item("b")])
        await unit.kill()
        for task in (*flying, *waiting):
            with pytest.raises(UnitLost):
                await task
        with pytest.raises(UnitLost):
            await replica.submit(item("c"), 1)
        await unit.start()
        other = await replicas.pick()
        assert other is not replica
        assert (await other.submit(item("a"), 1)).value.rows == 1


async def test_unit_that_answers_no_task_is_given_up() -> None:
    unit = verifier()
    async with replicas_of(unit, how=IMPATIENT) as replicas:
        replica = await replicas.pick()
        unit.engine.run = lambda *_: unit.engine._thawed.wait()  # type: ignore[method-assign,return-value,assignment]
        with pytest.raises(UnitLost, match="answers no task"):
            await replica.submit(item("a"), 1)
        assert not replica.alive


class Liar(verifier_pb2_grpc.VerifierServicer):
    """A verifier that answers every task with the same result."""

    def __init__(self, result: verifier_pb2.VerifyResult) -> None:
        self.address = ""
        self._result = result
        self._server: Any = None

    async def start(self) -> None:
        self._server = grpc.aio.server()
        verifier_pb2_grpc.add_VerifierServicer_to_server(self, self._server)
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        await self._server.start()

    async def close(self) -> None:
        await self._server.stop(None)

    async def Describe(self, request: Any, context: Any) -> Any:
        return verifier_pb2.VerifierDescription(max_rows=64)

    async def Work(self, requests: Any, context: Any) -> None:
        await context.write(verifier_pb2.VerifierResponse(credits=common_pb2.Credits(tasks=1)))
        while await context.read() is not grpc.aio.EOF:
            await context.write(verifier_pb2.VerifierResponse(result=self._result))


ITEM = verifier_pb2.VerifyItemResult(hidden=b"", rows=0)


@pytest.mark.parametrize(
    ("result", "fault", "message"),
    [
        (verifier_pb2.VerifyResult(task_id=1), Nonsense, "0 results for 1 items"),
        (verifier_pb2.VerifyResult(task_id=1, items=[ITEM, ITEM]), Nonsense, "2 results for 1 items"),
        (verifier_pb2.VerifyResult(task_id=9, items=[ITEM]), UnitLost, "answered task 9, which is not under way"),
        (verifier_pb2.VerifyResult(task_id=1, error=common_pb2.Error(code=8, message="m")), UnitError, "INTERNAL: m"),
        (verifier_pb2.VerifyResult(task_id=1, error=common_pb2.Error(code=99)), UnitError, "error code 99"),  # type: ignore[arg-type]
    ],
)
async def test_answer_that_breaks_the_contract_fails_the_item(
    result: verifier_pb2.VerifyResult, fault: type[Exception], message: str
) -> None:
    async with replicas_of(Liar(result)) as replicas:
        replica = await replicas.pick()
        with pytest.raises(fault, match=message):
            await replica.submit(item("a"), 1)


async def test_stale_update_is_refused_with_its_code() -> None:
    unit = verifier()
    async with replicas_of(unit) as replicas:
        replica = await replicas.pick()
        with pytest.raises(UnitError) as refused:
            await replica.submit(VerifyItem(SessionUpdate("a", 1, 5, 0)), 1)
        assert refused.value.code is ErrorCode.SESSION_LOST


async def test_sessions_go_to_the_least_loaded_replica_and_avoid_where_they_failed() -> None:
    async with replicas_of(verifier(), verifier()) as replicas:
        loads: list[int] = []
        for n in range(6):
            (await replicas.pick()).pin(str(n))
        loads = [replica.load[0] for replica in replicas.replicas]
        assert loads == [3, 3]
        first = await replicas.pick()
        assert await replicas.pick(avoid=first) is not first


async def test_replica_is_picked_by_digest_only() -> None:
    async with replicas_of(verifier(digest="x"), verifier(digest="y"), how=IMPATIENT) as replicas:
        for digest in ("x", "y"):
            assert (await replicas.pick(digest)).digest == digest
        with pytest.raises(NoReplica, match=r"no verifier for 0\.2 s"):
            await replicas.pick("z")


async def test_every_address_behind_a_list_of_names_is_found() -> None:
    names = parse_addresses("127.0.0.1:1, localhost:2,no-such-host.invalid:3")
    assert await resolve(names) >= {"127.0.0.1:1", "127.0.0.1:2"}
    assert await resolve(parse_addresses("[::1]:5")) == {"[::1]:5"}


@pytest.mark.parametrize("address", ["host", ":1", "host:", "host:x", "host:65536", "a:1,,b:2"])
def test_address_that_is_no_host_and_port_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="must be host:port"):
        parse_addresses(address)


async def test_replica_that_comes_later_is_found_without_a_restart() -> None:
    early, late = verifier(), verifier()
    await early.start()
    await late.start()
    addresses = f"{early.address},{late.address}"
    await late.kill()
    replicas = ReplicaSet(VERIFY, addresses, lambda _: PassLimits(64, 64), FAST)
    replicas.start()
    assert (await replicas.pick()).address == early.address
    await late.start()
    async with asyncio.timeout(10):
        while len(replicas.replicas) < 2:
            await asyncio.sleep(0.005)
    await replicas.close()
    await early.close()
    await late.close()


async def test_draining_replica_keeps_its_sessions_and_gets_no_new_ones() -> None:
    leaving, staying = verifier(), verifier()
    async with replicas_of(leaving, staying) as replicas:
        replica = next(r for r in replicas.replicas if r.address == leaving.address)
        replica.pin("a")
        assert (await replica.submit(item("a", 1), 1)).value.rows == 1
        draining = asyncio.create_task(leaving.drain())
        await until(lambda: len(replicas.replicas) == 1)
        for _ in range(4):
            other = await replicas.pick()
            assert other.address == staying.address
            other.pin("b")
        known = History([1])
        more = VerifyItem(SessionUpdate("a", 1, len(known), known.hash, append=(2,)))
        assert (await replica.submit(more, 1)).value.data == toy.hidden_row([1, 2]).tobytes()
        assert not draining.done()
        replica.release("a")
        await asyncio.wait_for(draining, 10)
        await until(lambda: not replica.alive)


async def test_idle_replica_told_to_end_is_left_at_once() -> None:
    unit = verifier()
    async with replicas_of(unit) as replicas:
        replica = await replicas.pick()
        await asyncio.wait_for(unit.drain(), 10)
        await until(lambda: not replica.alive)


async def test_pass_under_way_when_its_unit_is_told_to_end_is_answered() -> None:
    unit = verifier()
    async with replicas_of(unit) as replicas:
        replica = await replicas.pick()
        unit.engine.gate.clear()
        flying = await submit_all(replica, [item("a")])
        await entered(unit)
        waiting = await submit_all(replica, [item("b")])
        draining = asyncio.create_task(unit.drain())
        await until(lambda: not replicas.replicas)
        unit.engine.gate.set()
        for served in (*flying, *waiting):
            assert (await served).value.rows == 1
        await asyncio.wait_for(draining, 10)


async def test_lost_unit_leaves_no_connection_behind() -> None:
    """Whatever the garbage collector has still to find."""
    unit = verifier()
    async with replicas_of(unit, how=replace(FAST, doubt_s=(0.01, 0.01))) as replicas:
        assert (await (await replicas.pick()).submit(item("0"), 1)).value.rows == 1
        gc.collect()
        gc.disable()
        try:
            before = open_handles()
            for number in range(4):
                replica = await replicas.pick()
                await replica.submit(item(f"next {number}"), 1)
                replica.blame(Nonsense("no"))
                await until(lambda replica=replica: not replica.alive)  # type: ignore[misc]
            await replicas.pick()
            await until(lambda: open_handles() == before)
        finally:
            gc.enable()


def open_handles() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


async def test_unit_that_answers_nonsense_is_given_up_and_tried_again_after_longer_and_longer_pauses() -> None:
    liar = Liar(verifier_pb2.VerifyResult(task_id=9, items=[ITEM]))
    how = replace(FAST, doubt_s=(0.1, 60.0))
    began: list[float] = []
    async with replicas_of(liar, how=how) as replicas:
        for _ in range(4):
            replica = await replicas.pick()
            began.append(asyncio.get_running_loop().time())
            with pytest.raises(UnitLost, match="not under way"):
                await replica.submit(item("a"), 1)
    pauses = [later - earlier for earlier, later in pairwise(began)]
    assert all(pause >= least for pause, least in zip(pauses, (0.1, 0.2, 0.4), strict=True))


async def test_only_items_that_the_unit_had_may_be_to_blame_for_its_loss() -> None:
    unit = verifier()
    async with replicas_of(unit) as replicas:
        replica = await replicas.pick()
        unit.engine.gate.clear()
        flying = await submit_all(replica, [item("a")])
        await entered(unit)
        waiting = await submit_all(replica, [item("b")])
        await unit.kill()
        for tasks, had_item in ((flying, True), (waiting, False)):
            with pytest.raises(UnitLost) as lost:
                await tasks[0]
            assert lost.value.had_item is had_item


async def test_item_that_is_to_go_alone_shares_its_pass_with_none() -> None:
    unit = verifier()
    async with replicas_of(unit) as replicas:
        replica = await replicas.pick()
        unit.engine.gate.clear()
        first = await submit_all(replica, [item("0")])
        await entered(unit)
        rest = [asyncio.create_task(replica.submit(item(str(n)), 1, alone=n in (3, 4))) for n in range(1, 7)]
        await asyncio.sleep(0)
        unit.engine.gate.set()
        await asyncio.gather(*first, *rest)
        assert unit.engine.passes == [1, 4, 1, 1]


@pytest.mark.parametrize("unwritable", [item("a", -1), replace(item("a"), tree=None)])
async def test_item_that_cannot_be_written_fails_instead_of_waiting_for_ever(unwritable: VerifyItem) -> None:
    async with replicas_of(verifier()) as replicas:
        with pytest.raises(UnitLost, match="cannot be sent a task"):
            await (await replicas.pick()).submit(unwritable, 1)


async def test_name_that_resolves_later_is_found_then_and_its_addresses_stay_when_it_stops_resolving(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    unit = verifier()
    await unit.start()
    answers: list[Any] = [socket.gaierror("not yet"), UnicodeError("too long"), [unit.port], socket.gaierror("gone")]

    async def getaddrinfo(_host: str, port: int, **_: Any) -> Any:
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, Exception):
            raise answer
        return [(socket.AF_INET, None, None, "", ("127.0.0.1", port))]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
    replicas = ReplicaSet(VERIFY, f"late.invalid:{unit.port}", lambda _: PassLimits(64, 64), FAST)
    replicas.start()
    try:
        replica = await replicas.pick()
        await asyncio.sleep(3 * FAST.resolve_every_s)
        assert len(answers) == 1
        assert (await replica.submit(item("a"), 1)).value.rows == 1
        await unit.kill()
        await until(lambda: not replicas.loads)
    finally:
        await replicas.close()
        await unit.close()


async def test_address_that_changes_its_owner_is_asked_again_and_never_mistaken() -> None:
    first, other, last = verifier(), FakeUnit(DRAFT, FakeDrafter), verifier()
    async with replicas_of(first) as replicas:
        other.port = last.port = first.port
        await first.kill()
        await other.start()
        await asyncio.sleep(0.3)
        assert replicas.replicas == ()
        await other.kill()
        await last.start()
        assert (await (await replicas.pick()).submit(item("a"), 1)).value.rows == 1
        await last.close()


async def test_unit_with_two_addresses_is_one_replica() -> None:
    unit = verifier()
    await unit.start()
    addresses = f"{unit.address},127.0.0.2:{unit.port}"
    replicas = ReplicaSet(VERIFY, addresses, lambda _: PassLimits(64, 64), FAST)
    replicas.start()
    try:
        await replicas.pick()
        await until(lambda: len(replicas.loads) == 2)
        await asyncio.sleep(0.3)
        assert len(replicas.replicas) == 1
    finally:
        await replicas.close()
        await unit.close()


async def test_replica_of_another_checkpoint_is_left_alone() -> None:
    async with replicas_of(verifier(), verifier()) as replicas:
        replicas.replicas[0].description.identity.fingerprint = "another"
        replicas.fingerprint = FINGERPRINT
        assert len(replicas.replicas) == len(replicas.strangers) == 1
        assert (await replicas.pick()).description.identity.fingerprint == FINGERPRINT


async def test_session_waits_for_its_own_digest_and_says_so() -> None:
    async with replicas_of(verifier(digest="x"), how=IMPATIENT) as replicas:
        with pytest.raises(NoReplica, match=r"^no verifier for 0\.2 s: 1 there, none of digest z$"):
            await replicas.pick("z")
