"""The `Work` stream over a real connection: credits, order, cancel, release, deadlines, ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
from hypothesis import given, settings
from hypothesis import strategies as st

from hetspec.decoding.history import History
from hetspec.rpc.channel import open_channel
from hetspec.rpc.contracts import VERIFY
from hetspec.rpc.messages import ErrorCode, HiddenRows, SessionUpdate, VerifyItem
from hetspec.v1 import common_pb2, verifier_pb2, verifier_pb2_grpc
from tests import toy
from tests.fakes import FakeUnit, FakeVerifier, Fault

NO_TOKENS = History().hash


def opening(session: str, ids: tuple[int, ...] = (1, 2)) -> VerifyItem:
    return VerifyItem(SessionUpdate(session, 1, 0, NO_TOKENS, append=ids))


class Client:
    """A bare client: sends what it is told, credit or none."""

    def __init__(self, unit: FakeUnit) -> None:
        self._channel = open_channel(unit.address)
        self.call: Any = verifier_pb2_grpc.VerifierStub(self._channel).Work()

    async def task(self, task_id: int, *items: VerifyItem, timeout_ns: int = 0) -> None:
        pb = verifier_pb2.VerifyTask(task_id=task_id, timeout_ns=timeout_ns, items=[item.to_pb() for item in items])
        await self.call.write(verifier_pb2.VerifierRequest(task=pb))

    async def cancel(self, task_id: int) -> None:
        await self.call.write(verifier_pb2.VerifierRequest(cancel=common_pb2.Cancel(task_id=task_id)))

    async def release(self, *sessions: str) -> None:
        await self.call.write(verifier_pb2.VerifierRequest(release=common_pb2.Release(sessions=sessions)))

    async def credits(self) -> int:
        return int((await self.call.read()).credits.tasks)

    async def result(self) -> Any:
        async with asyncio.timeout(10):
            return (await self.call.read()).result

    async def close(self) -> None:
        self.call.cancel()
        await self._channel.close()


@asynccontextmanager
async def verifier(**options: Any) -> AsyncIterator[FakeUnit]:
    unit = FakeUnit(VERIFY, FakeVerifier, **options)
    await unit.start()
    try:
        yield unit
    finally:
        await unit.close()


@asynccontextmanager
async def client_of(unit: FakeUnit) -> AsyncIterator[Client]:
    client = Client(unit)
    assert await client.credits() == FakeUnit.CREDITS
    try:
        yield client
    finally:
        await client.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.002)


async def test_result_holds_what_the_engine_computed_and_how_long_it_took() -> None:
    async with verifier() as unit, client_of(unit) as client:
        await client.task(7, opening("a", (1, 2)), opening("b", (3,)))
        result = await client.result()
        assert result.task_id == 7
        assert [item.hidden for item in result.items] == [toy.hidden_row(ids).tobytes() for ids in ((1, 2), (3,))]
        assert result.timing.compute_ns > 0
        assert unit.engine.passes == [2]


async def test_results_come_in_the_order_of_the_tasks() -> None:
    async with verifier() as unit, client_of(unit) as client:
        for task_id in (5, 3):
            await client.task(task_id, opening(str(task_id)))
        assert [(await client.result()).task_id for _ in range(2)] == [5, 3]


async def test_task_without_a_credit_is_refused_at_once_and_the_others_are_served() -> None:
    async with verifier() as unit, client_of(unit) as client:
        unit.engine.gate.clear()
        for task_id in (1, 2, 3):
            await client.task(task_id, opening(str(task_id)))
        refused = await client.result()
        assert (refused.task_id, refused.error.code) == (3, ErrorCode.OUT_OF_CREDITS)
        unit.engine.gate.set()
        assert [(await client.result()).task_id for _ in range(2)] == [1, 2]
        await client.task(4, opening("4"))
        assert not (await client.result()).HasField("error")


async def test_task_id_under_way_is_refused() -> None:
    async with verifier() as unit, client_of(unit) as client:
        unit.engine.gate.clear()
        await client.task(1, opening("a"))
        await client.task(1, opening("b"))
        refused = await client.result()
        assert (refused.error.code, refused.error.message) == (ErrorCode.INVALID, "task_id: 1 is under way already")
        unit.engine.gate.set()
        assert not (await client.result()).HasField("error")


async def test_cancel_overtakes_the_queue_and_stops_what_runs() -> None:
    async with verifier() as unit, client_of(unit) as client:
        unit.engine.gate.clear()
        await client.task(1, opening("a"))
        await client.task(2, opening("b"))
        await until(unit.engine.entered.is_set)
        await client.cancel(2)
        await client.cancel(1)
        answers = [await client.result() for _ in range(2)]
        assert [(a.task_id, a.error.code) for a in answers] == [(1, ErrorCode.CANCELLED), (2, ErrorCode.CANCELLED)]
        assert unit.engine.passes == [1]  # the second one never ran
        assert not unit.held


async def test_release_overtakes_the_queue_and_what_waits_does_not_open_the_session_again() -> None:
    async with verifier() as unit, client_of(unit) as client:
        unit.engine.gate.clear()
        await client.task(1, opening("a"))
        await client.task(2, opening("a"), opening("b"))
        await until(unit.engine.entered.is_set)
        await client.release("a")
        await client.cancel(99)  # of no task: nothing happens, but what was sent before has been read once ...
        await client.task(3, opening("c"))  # ... this one, without a credit, is answered
        assert (await client.result()).error.code == ErrorCode.OUT_OF_CREDITS
        unit.engine.gate.set()
        assert not (await client.result()).HasField("error")
        dropped, kept = (await client.result()).items
        assert dropped.error.code == ErrorCode.CANCELLED
        assert not kept.HasField("error")
        assert {name.partition("/")[2] for name in unit.held} == {"b"}


async def test_deadline_passes_while_waiting_and_while_running() -> None:
    async with verifier() as unit, client_of(unit) as client:
        unit.engine.gate.clear()
        await client.task(1, opening("a"), timeout_ns=20_000_000)
        await client.task(2, opening("b"), timeout_ns=1)
        answers = [await client.result() for _ in range(2)]
        assert {a.error.code for a in answers} == {ErrorCode.DEADLINE_EXCEEDED}
        assert unit.engine.passes == [1]


async def test_end_of_a_stream_frees_its_sessions_and_no_others() -> None:
    async with verifier() as unit, client_of(unit) as stays, client_of(unit) as goes:
        for client in (stays, goes):
            await client.task(1, opening("a"), opening("b"))
            await client.result()
        assert len(unit.held) == 4  # the same names, of two streams
        await goes.close()
        await until(lambda: len(unit.held) == 2)
        await stays.task(2, VerifyItem(SessionUpdate("a", 1, 2, History((1, 2)).hash, append=(3,))))
        assert (await stays.result()).items[0].hidden == toy.hidden_row((1, 2, 3)).tobytes()


async def test_end_of_a_stream_stops_what_runs_and_drops_what_waits() -> None:
    async with verifier() as unit, client_of(unit) as client:
        unit.engine.gate.clear()
        await client.task(1, opening("a"))
        await client.task(2, opening("b"))
        await until(unit.engine.entered.is_set)
        await client.close()
        async with client_of(unit) as other:
            await other.task(1, opening("c"))
            await until(lambda: len(unit.engine.passes) == 2)  # the gate is still closed: the first one was stopped
            unit.engine.gate.set()
            await other.result()
            assert {name.partition("/")[2] for name in unit.held} == {"c"}


async def test_tasks_under_way_are_answered_when_the_client_has_nothing_more_to_say() -> None:
    async with verifier() as unit, client_of(unit) as client:
        await client.task(1, opening("a"))
        await client.call.done_writing()
        assert (await client.result()).task_id == 1
        assert await client.call.read() is grpc.aio.EOF
        await until(lambda: not unit.held)


async def test_broken_item_is_refused_alone() -> None:
    async with verifier() as unit, client_of(unit) as client:
        good, bad = opening("a").to_pb(), opening("b").to_pb()
        bad.tree.tokens.extend([4, 5])
        bad.tree.parents.extend([-1, 1])
        task = verifier_pb2.VerifyTask(task_id=1, items=[bad, good, bad])
        await client.call.write(verifier_pb2.VerifierRequest(task=task))
        first, second, third = (await client.result()).items
        assert first.error == third.error
        assert (first.error.code, first.error.message) == (
            ErrorCode.INVALID,
            "tree: parents[1] = 1, must be in [-1, 1)",
        )
        assert second.hidden == toy.hidden_row((1, 2)).tobytes()


async def test_engine_that_raises_is_answered_for_and_lives_on() -> None:
    script = iter([Fault.REFUSE])
    async with verifier(chaos=lambda: next(script, None)) as unit, client_of(unit) as client:
        await client.task(1, opening("a"))
        assert (await client.result()).error.code == ErrorCode.INTERNAL
        await client.task(2, VerifyItem(SessionUpdate("b", 1, 0, NO_TOKENS), hidden=HiddenRows.NONE))
        assert (await client.result()).items[0].rows == 0


async def test_describe_answers_while_the_engine_computes() -> None:
    async with verifier() as unit, client_of(unit) as client:
        unit.engine.gate.clear()
        await client.task(1, opening("a"))
        await until(unit.engine.entered.is_set)
        async with open_channel(unit.address) as channel:
            description = await verifier_pb2_grpc.VerifierStub(channel).Describe(
                common_pb2.DescribeRequest(), timeout=5
            )
        assert description.vocab_size == toy.VOCAB_SIZE


@given(st.lists(st.sampled_from(("task", "cancel", "release")), max_size=40), st.randoms())
@settings(max_examples=20)
def test_every_task_is_answered_exactly_once_whatever_is_sent(kinds: list[str], random: Any) -> None:
    async def scenario() -> None:
        async with verifier() as unit, client_of(unit) as client:
            sent: list[int] = []
            answered: list[int] = []
            reading = asyncio.create_task(read_all(client, answered))
            for kind in kinds:
                if kind == "task":
                    sent.append(len(sent) + 1)
                    await client.task(sent[-1], opening(f"{random.randrange(3)}"))
                elif kind == "cancel":
                    await client.cancel(random.randrange(1, len(sent) + 2))
                else:
                    await client.release(f"{random.randrange(3)}")
            await client.call.done_writing()
            await reading
            assert sorted(answered) == sent
            await until(lambda: not unit.held)

    asyncio.run(scenario())


async def read_all(client: Client, answered: list[int]) -> None:
    while (response := await client.call.read()) is not grpc.aio.EOF:
        answered.append(response.result.task_id)
