"""A drafter that checks drafted tokens itself, over the toy model: what plain decoding confirms is the oracle."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from hetspec.decoding.sampling import NoiseKey, Sampling
from hetspec.rpc.contracts import DRAFT, WALK
from hetspec.rpc.messages import HiddenRows
from orchestrator.engine.pre_verifying import UNKNOWN
from orchestrator.engine.request import GenerationRequest, Mode
from tests import toy
from tests.draft_checks import DraftChecks
from tests.fakes import (
    Chaos,
    FakeDrafter,
    FakeEngine,
    FakeSampler,
    FakeUnit,
    FakeVerifier,
    Fault,
    RandomChaos,
    World,
    fast_settings,
    no_chaos,
)

PROMPT = (1, 2, 3, 4, 5)
LONG = tuple(i % toy.END_ID for i in range(70))  # of several chunks


def checks(world: World, prompt: tuple[int, ...] = PROMPT, temperature: float = 0.7) -> DraftChecks:
    sampling, noise, max_tokens = Sampling(temperature), NoiseKey(3), 60
    request = GenerationRequest("test", prompt, sampling, noise, max_tokens, Mode.CHAIN, 8, 8)
    return DraftChecks(world.engine, request, toy.continuation(prompt, max_tokens, sampling, noise))


def holder(target: type[FakeEngine] | None = FakeVerifier, chaos: Chaos = no_chaos, digest: str = "d") -> FakeUnit:
    return FakeUnit(DRAFT, FakeDrafter, digest=digest, target=target, target_chaos=chaos)


@asynccontextmanager
async def world_of(
    drafter: FakeUnit, sampler: FakeUnit | None = None, task_timeout_s: float = 20.0
) -> AsyncIterator[World]:
    settings = fast_settings(task_timeout_s=task_timeout_s)
    async with World(drafters=[drafter], samplers=[sampler] if sampler else None, settings=settings) as world:
        if drafter.targets:
            await world.until(lambda: bool(world.engine._fleet.pre_verifiers.replicas))
        yield world


@pytest.mark.parametrize("temperature", [0.0, 0.7])
async def test_the_answer_is_what_plain_decoding_confirms(temperature: float) -> None:
    chance = random.Random(temperature)
    drafter = holder()
    async with world_of(drafter) as world:
        for prompt in (PROMPT, LONG):
            one = checks(world, prompt, temperature)
            while one.coming:
                for _ in range(chance.randint(0, 3)):
                    tokens = one.drafted(chance.randint(0, 5), chance.randint(0, 2))
                    assert await one.check(tokens) == one.confirmed(tokens), (len(one.coming), tokens)
                one.decide(chance.randint(1, 4))
            one.session.release()
        await world.until_nothing_is_held()


async def test_what_is_known_is_not_asked_again_and_what_was_read_is_not_read_again() -> None:
    drafter = holder()
    async with world_of(drafter) as world:
        one, target = checks(world, LONG), drafter.targets[0]
        assert await one.check(one.drafted(3)) == 3
        asked = len(target.passes)
        for right in (0, 1, 2, 3):
            assert await one.check(one.drafted(right)) == right
        assert await one.check(one.drafted(2, wrong=0)) == 2
        assert len(target.passes) == asked
        one.decide(2)
        assert await one.check(one.drafted(1)) == 1
        assert len(target.passes) == asked
        assert await one.check(one.drafted(4)) == 4
        assert len(target.passes) == asked + 1
        assert one.session.statistics.host_ns["pre_verifier"] > 0


async def test_a_verdict_that_overtakes_a_check_leaves_its_answer_as_it_was_asked() -> None:
    drafter = holder()
    async with world_of(drafter) as world:
        one, target = checks(world), drafter.targets[0]
        target.gate.clear()
        tokens = one.drafted(3)
        check = asyncio.create_task(one.check(tokens))
        await asyncio.to_thread(target.entered.wait, 5)
        one.decide(5)
        target.gate.set()
        assert await check == 3
        assert await one.check(one.drafted(2)) == 2


@pytest.mark.parametrize("served", [True, False])
async def test_a_check_that_is_cut_leaves_the_session_where_it_was(served: bool) -> None:
    """served: whether the unit had answered when nobody waited for it any more."""
    drafter = holder()
    async with world_of(drafter) as world:
        one, target = checks(world), drafter.targets[0]
        assert await one.check(one.drafted(2)) == 2
        one.decide(5)
        target.gate.clear()
        target.entered.clear()
        check = asyncio.create_task(one.check(one.drafted(2)))
        await asyncio.to_thread(target.entered.wait, 5)
        if served:
            held = target.sessions.held
            target.gate.set()
            while max(len(session.ids) for session in held.values()) < len(one.session.history):
                time.sleep(0.001)  # noqa: ASYNC251 - the event loop stands still: the answer lies there unread
        check.cancel()
        with pytest.raises(asyncio.CancelledError):
            await check
        await world.until(lambda: drafter.queue.ended == drafter.queue.arrived)
        target.gate.set()
        appended: list[int] = []
        serve = target.serve
        target.serve = lambda item: appended.append(len(item.update.append)) or serve(item)  # type: ignore[method-assign]
        assert await one.check(one.drafted(3)) == 3
        assert appended == [5]
        assert not target.releases
        one.session.release()
        await world.until_nothing_is_held()


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.REFUSE, Fault.NONSENSE, Fault.FREEZE, Fault.DIE])
async def test_a_unit_that_fails_costs_nothing_but_the_answer(fault: Fault) -> None:
    chaos = RandomChaos(1, 0.4, [fault])
    drafter = holder(chaos=chaos)
    answers = []
    async with world_of(drafter, task_timeout_s=0.3 if fault is Fault.FREEZE else 20.0) as world:
        one = checks(world)
        for _ in range(12):
            tokens = one.drafted(3)
            answers.append(await one.check(tokens))
            assert answers[-1] in (one.confirmed(tokens), UNKNOWN)
            one.decide(4)
            one.sit_down()
        assert chaos.faults > 0
        assert UNKNOWN in answers or fault is Fault.LOST
        chaos.probability = 0.0
        await drafter.restart()
        await world.until(lambda: not one.session.drafter.replica.alive)  # type: ignore[union-attr]

        def is_there_again() -> bool:
            one.sit_down()
            return one.pre_verifying.is_possible(one.session)

        await world.until(is_there_again)
        tokens = one.drafted(6)
        assert await one.check(tokens) == one.confirmed(tokens)


async def test_without_a_sampler_that_answers_nothing_is_known() -> None:
    sampler = FakeUnit(WALK, FakeSampler, chaos=RandomChaos(0, 1.0, [Fault.REFUSE]))
    async with world_of(holder(), sampler) as world:
        one = checks(world)
        assert await one.check(one.drafted(3)) == UNKNOWN
        assert await one.check(one.drafted(3)) == UNKNOWN


async def test_a_drafter_that_does_not_hold_the_target_or_computes_other_bits_is_not_asked() -> None:
    for drafter in (holder(None), holder(digest="other")):
        async with world_of(drafter) as world:
            one = checks(world)
            assert not one.pre_verifying.is_possible(one.session)
            assert await one.check(one.drafted(3)) == UNKNOWN
            assert await one.check([]) == 0


async def test_only_the_sessions_own_drafter_is_asked() -> None:
    """Another one that holds the target is another device."""
    drafters = [holder(None), holder()]
    async with World(drafters=drafters) as world:
        await world.until(lambda: bool(world.engine._fleet.pre_verifiers.replicas))
        one, seats = checks(world), {r.address: r for r in world.engine._fleet.drafters.replicas}
        for drafter in drafters:
            one.session.drafter.leave()
            one.session.drafter.take(seats[drafter.address])
            assert await one.check(one.drafted(3)) == (3 if drafter.targets else UNKNOWN)


async def test_what_is_told_to_end_serves_its_sessions_and_takes_no_others() -> None:
    drafter = holder()
    async with world_of(drafter) as world:
        one = checks(world)
        assert await one.check(one.drafted(1)) == 1
        draining = asyncio.create_task(drafter.drain())
        await world.until(lambda: not world.engine._fleet.pre_verifiers.replicas)
        one.decide(4)
        assert await one.check(one.drafted(3)) == 3
        assert not draining.done()
        one.session.release()
        async with asyncio.timeout(10):
            await draining


async def test_chunks_of_a_long_prompt_want_no_rows() -> None:
    drafter = holder()
    async with world_of(drafter) as world:
        one, target = checks(world, LONG), drafter.targets[0]
        asked: list[tuple[int, HiddenRows]] = []
        serve = target.serve
        target.serve = lambda item: asked.append((len(item.update.append), item.hidden)) or serve(item)  # type: ignore[method-assign]
        assert await one.check(one.drafted(2)) == 2
    assert sum(length for length, _ in asked) == len(LONG)
    assert [hidden for _, hidden in asked] == [HiddenRows.NONE] * (len(asked) - 1) + [HiddenRows.LAST]
    assert max(length for length, _ in asked) <= 16
