"""The engine with its prefix cache over fake units: what was read is not read again, and no token changes for it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hetspec.decoding.sampling import NoiseKey, Sampling
from hetspec.rpc.contracts import DRAFT, VERIFY
from hetspec.rpc.messages import ErrorCode, HiddenStates, SessionUpdate, UnitError, VerifyItem
from orchestrator.engine.errors import UnitsUnavailable
from orchestrator.engine.request import GenerationRequest, Mode, Statistics
from tests.checked import answer, expected
from tests.fakes import (
    PAGE_TOKENS,
    Chaos,
    FakeDrafter,
    FakeUnit,
    FakeVerifier,
    Fault,
    RandomChaos,
    World,
    fast_settings,
)

PROMPT = tuple(i % 6 for i in range(50))


class Reader(FakeVerifier):
    """Counts the tokens it reads."""

    def __init__(self, chaos: Chaos, on_death: object) -> None:
        super().__init__(chaos, on_death)  # type: ignore[arg-type]
        self.read: list[int] = []
        self.updates: list[SessionUpdate] = []

    def serve(self, item: VerifyItem) -> HiddenStates:
        self.read.append(len(item.update.append))
        self.updates.append(item.update)
        return super().serve(item)


class Narrow(Reader):
    """Refuses to open a session while it holds another one: others than this orchestrator may have filled it."""

    def serve(self, item: VerifyItem) -> HiddenStates:
        if self.sessions.held.keys() - {item.update.session}:
            raise UnitError(ErrorCode.EXHAUSTED, "no room")
        return super().serve(item)


def readers(count: int = 1, kind: type[Reader] = Reader) -> list[FakeUnit]:
    return [FakeUnit(VERIFY, kind) for _ in range(count)]


def world_of(verifiers: Sequence[FakeUnit], **fields: object) -> World:
    fields = {"prefix_tokens": "50%"} | fields
    return World(verifiers=verifiers, settings=fast_settings(**fields))  # type: ignore[arg-type]


def request_of(prompt: Sequence[int], max_tokens: int = 12, mode: Mode = Mode.TREE, seed: int = 0) -> GenerationRequest:
    return GenerationRequest("r", tuple(prompt), Sampling(0.8), NoiseKey(seed), max_tokens, mode, 12, 4)


def value_of(world: World, name: str, unit: str = "verifier", **labels: str) -> float:
    return world.registry.get_sample_value(f"hetspec_prefix_{name}", {"unit": unit} | labels) or 0.0


def reader_of(world: World, number: int = 0) -> Reader:
    engine = world.verifiers[number].engine
    assert isinstance(engine, Reader)
    return engine


@pytest.mark.parametrize("mode", Mode)
async def test_the_next_turn_reads_what_is_new(mode: Mode) -> None:
    async with world_of(readers()) as world:
        first = request_of(PROMPT, mode=mode)
        assert (await answer(world, first)).cached_tokens == 0
        follow_up = request_of([*PROMPT, *expected(first)[:-1], 3, 1, 2], mode=mode)
        before = sum(reader_of(world).read)
        statistics = await answer(world, follow_up)
        # What the last round's tree added has not been committed when the answer ended.
        assert len(PROMPT) <= statistics.cached_tokens <= len(follow_up.prompt_ids) - 3
        read = len(follow_up.prompt_ids) - statistics.cached_tokens
        assert sum(reader_of(world).read) - before == read + statistics.rounds - 1
        assert (value_of(world, "hits_total"), value_of(world, "misses_total")) == (1, 1)
        assert value_of(world, "reused_tokens_total") == statistics.cached_tokens
        assert value_of(world, "entries") == 1
        await world.until(lambda: held_of(world.verifiers) == 1)
        assert value_of(world, "held_tokens") >= len(follow_up.prompt_ids)


async def test_plain_decoding_leaves_all_but_the_last_token() -> None:
    async with world_of(readers()) as world:
        first = request_of(PROMPT, mode=Mode.PLAIN)
        await answer(world, first)
        whole = [*PROMPT, *expected(first)]
        assert (await answer(world, request_of([*whole, 1], mode=Mode.PLAIN))).cached_tokens == len(whole) - 1


async def test_the_drafter_begins_from_what_it_read_too() -> None:
    async with world_of(readers()) as world:
        await answer(world, request_of(PROMPT))
        await answer(world, request_of([*PROMPT, 1, 2, 3]))
        assert value_of(world, "hits_total", "drafter") == 1
        assert value_of(world, "entries", "drafter") == value_of(world, "entries") == 2


async def test_nothing_of_an_aborted_request_is_kept_or_reused() -> None:
    async with world_of(readers()) as world:
        async with aclosing(world.engine.generate(request_of(PROMPT, max_tokens=40))) as generation:
            await anext(generation)
        await world.until_nothing_is_held()
        assert value_of(world, "entries") == 0
        assert (await answer(world, request_of(PROMPT))).cached_tokens == 0


async def test_a_request_that_declines_takes_nothing_and_leaves_nothing() -> None:
    async with world_of(readers()) as world:
        declines = replace(request_of(PROMPT), reuse_prefix=False)
        await answer(world, declines)
        await world.until_nothing_is_held()
        await answer(world, request_of(PROMPT))
        assert (await answer(world, declines)).cached_tokens == 0
        await world.until(lambda: held_of(world.verifiers) == 1)


async def test_a_restarted_unit_costs_the_prefix_and_nothing_else() -> None:
    async with world_of(readers()) as world:
        await answer(world, request_of(PROMPT))
        await world.verifiers[0].kill()
        await world.until(lambda: world.engine.replicas()["verifier"] == 0)
        await world.verifiers[0].start()
        await world.until(lambda: world.engine.replicas()["verifier"] == 1)
        statistics = await answer(world, request_of(PROMPT))
        assert (statistics.cached_tokens, statistics.rebuilds) == (0, 0)
        assert value_of(world, "entries") == 1


async def test_a_prefix_that_a_unit_forgot_counts_as_no_fault_of_the_request() -> None:
    async with world_of(readers(), max_rebuilds=0) as world:
        await answer(world, request_of(PROMPT))
        reader_of(world).sessions.held.clear()
        statistics = await answer(world, request_of(PROMPT))
        assert (statistics.cached_tokens, statistics.rebuilds) == (0, 0)
        assert value_of(world, "evictions_total", reason="lost") == 1
        assert (await answer(world, request_of(PROMPT))).cached_tokens == len(PROMPT) - 1


async def test_entries_go_when_a_unit_has_no_room_and_the_request_does_not_wait() -> None:
    async with world_of(readers(kind=Narrow), max_rebuilds=0) as world:
        await answer(world, request_of(PROMPT, mode=Mode.PLAIN))
        statistics = await answer(world, request_of(PROMPT[::-1], mode=Mode.PLAIN))
        assert statistics.rebuilds == 0
        assert value_of(world, "evictions_total", reason="exhausted") == 1
        await world.until(lambda: held_of(world.verifiers) == 1)


async def test_a_conversation_stays_on_the_replica_that_knows_it() -> None:
    async with world_of(readers(2)) as world:
        await world.until(lambda: world.engine.replicas()["verifier"] == 2)
        prompts = [tuple((i * k) % 6 for i in range(40)) for k in (1, 5)]
        async with aclosing(world.engine.generate(request_of(prompts[0], 40))) as first:
            await anext(first)  # so that the second goes to the other replica
            await answer(world, request_of(prompts[1]))
            async for _ in first:
                pass
        for _ in range(3):
            for prompt in prompts:
                assert (await answer(world, request_of([*prompt, 1, 2]))).cached_tokens >= len(prompt)
        assert all(unit.held for unit in world.verifiers)


async def test_a_unit_that_is_to_end_keeps_nothing() -> None:
    async with world_of(readers(2)) as world:
        await world.until(lambda: world.engine.replicas()["verifier"] == 2)
        async with aclosing(world.engine.generate(request_of(PROMPT, 40))) as generation:
            await anext(generation)
            used = next(unit for unit in world.verifiers if unit.held)
            draining = asyncio.create_task(used.drain())
            await world.until(lambda: world.engine.replicas()["verifier"] == 1)
            async for _ in generation:
                pass
        await draining
        await world.until(lambda: not used.held)


@pytest.mark.parametrize("prefix_tokens", ["0", "50%"])
@pytest.mark.parametrize("max_tokens", [1, 12])
async def test_choices_of_one_prompt_read_it_once(max_tokens: int, prefix_tokens: str) -> None:
    """Also when the first of them has ended before the others' forks are answered."""
    async with world_of(readers(), prefix_tokens=prefix_tokens) as world:
        choices = [replace(request_of(PROMPT, max_tokens), noise=NoiseKey(5, 0, index)) for index in range(4)]
        statistics = await asyncio.gather(*(answer(world, choice) for choice in choices))
        taken = sorted(each.cached_tokens for each in statistics)
        assert taken[0] == 0
        assert min(taken[1:]) > len(PROMPT) - 1 - PAGE_TOKENS
        assert [each.rebuilds for each in statistics] == [0] * 4
        rounds = sum(each.rounds for each in statistics)
        assert sum(reader_of(world).read) == sum(len(PROMPT) - each for each in taken) + rounds - 4


async def test_requests_that_begin_alike_wait_for_the_one_that_reads() -> None:
    async with world_of(readers()) as world:
        asked = [request_of([*PROMPT, *own], 4, mode=Mode.PLAIN) for own in ((1, 1, 1), (2, 2), (3,))]
        statistics = await asyncio.gather(*(answer(world, request) for request in asked))
        nothing, *rest = sorted(each.cached_tokens for each in statistics)
        assert nothing == 0
        assert min(rest) > len(PROMPT) - PAGE_TOKENS


async def test_when_the_request_that_reads_is_aborted_the_others_read_for_themselves() -> None:
    async with world_of(readers()) as world:
        engine = reader_of(world)
        engine.gate.clear()
        first = asyncio.create_task(answer(world, request_of(PROMPT)))
        await world.until(engine.entered.is_set)
        others = [asyncio.create_task(answer(world, request_of(PROMPT, seed=seed))) for seed in (1, 2)]
        await asyncio.sleep(0.05)
        assert len(engine.passes) == 1
        first.cancel()
        engine.gate.set()
        statistics = await asyncio.gather(*others)
        assert min(each.cached_tokens for each in statistics) == 0
        assert all(not update.fork_of.endswith("-1") for update in engine.updates)


prompts = st.builds(
    lambda stem, shared, own: [*([stem, 4, 2] * 20)[:shared], *own],
    stem=st.integers(0, 1),
    shared=st.integers(0, 60),
    own=st.lists(st.integers(0, 5), min_size=1, max_size=20),
)
requests = st.builds(
    request_of, prompts, st.integers(1, 12), mode=st.sampled_from(Mode), seed=st.integers(0, 3)
)  # fmt: skip


@given(st.lists(st.tuples(requests, st.integers(0, 60)), min_size=3, max_size=14), st.integers(0, 2**32), st.booleans())
@settings(max_examples=12)
def test_whatever_fails_or_is_aborted_no_token_changes_and_units_hold_the_entries_alone(
    asked: list[tuple[GenerationRequest, int]], seed: int, chaotic: bool
) -> None:
    kinds = (Fault.LOST, Fault.REFUSE, Fault.DIE)

    def chaos(number: int) -> Chaos:
        return RandomChaos(seed + number, 0.05 if chaotic else 0.0, kinds)

    async def scenario() -> None:
        world = World(
            verifiers=[FakeUnit(VERIFY, FakeVerifier, chaos(number)) for number in (1, 2)],
            drafters=[FakeUnit(DRAFT, FakeDrafter, chaos(3))],
            settings=fast_settings(max_rebuilds=30, prefix_tokens="200"),
        )
        async with world:
            running = []
            for request, steps in asked:
                running.append(asyncio.create_task(answer(world, request)))
                for _ in range(steps):
                    await asyncio.sleep(0.0005)
                if steps % 5 == 0:
                    running[-1].cancel()
            for ended in await asyncio.gather(*running, return_exceptions=True):
                # All verifiers may be down in the moment a request comes.
                refused = chaotic and isinstance(ended, UnitsUnavailable)
                assert refused or isinstance(ended, Statistics | asyncio.CancelledError)
            if not chaotic:  # else a unit may have forgotten them
                await world.until(lambda: held_of(world.verifiers) == value_of(world, "entries", "verifier"))
                await world.until(lambda: held_of(world.drafters) == value_of(world, "entries", "drafter"))
            assert value_of(world, "held_tokens", "verifier") <= 2 * 200

    asyncio.run(scenario())


def held_of(units: Sequence[FakeUnit]) -> int:
    return sum(len(unit.held) for unit in units)
