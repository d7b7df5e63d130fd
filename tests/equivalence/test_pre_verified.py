"""What a drafter finds that holds the target is what plain decoding says, and what it takes in an emulated world."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hetspec.hardware.cost_as import parse_cost_as
from hetspec.hardware.platform import Role
from hetspec.hardware.profile import load_profile
from hetspec.hardware.work import ItemRows, VerifyWork, WalkWork
from orchestrator.clock.clock import Arrival
from orchestrator.clock.presence import Presence
from orchestrator.clock.settings import WorldSettings
from orchestrator.clock.world import World
from orchestrator.engine.pre_verifying import UNKNOWN
from orchestrator.units.known_queue import KnownQueue
from orchestrator.units.link import Link
from tests.draft_checks import DraftChecks
from tests.equivalence.test_emulated import account
from tests.system import Ask, Setup, System, until

PROMPT = tuple(range(30, 110))
LAYERS = 4  # of the target that runs
COST_AS = "llama3.2-3b:int8+llama3.2-1b:int8"  # both fit into the ranks of the PIM


@pytest.fixture
def setup(tiny: Path, tiny_random_draft: Path, cache_dir: Path) -> Setup:
    return Setup(tiny, cache_dir, draft=tiny_random_draft, chunk_tokens=32, holds_target=True)


def emulated(setup: Setup, hardware: str, cost_as: str = COST_AS) -> Setup:
    return replace(setup, world=WorldSettings(load_profile(hardware), parse_cost_as(cost_as)))


async def checks(system: System, ask: Ask) -> DraftChecks:
    answer = await system.generate(replace(ask, mode="plain"))
    fleet = system.engine._fleet
    await until(lambda: bool(fleet.pre_verifiers.replicas and fleet.pre_samplers.replicas))
    return DraftChecks(system.engine, ask.request(), answer.tokens)


@pytest.mark.parametrize(("precision", "temperature"), [("int8", 0.0), ("float32", 0.8)])
async def test_a_check_confirms_what_plain_decoding_emits(setup: Setup, precision: str, temperature: float) -> None:
    chance = random.Random(7)
    async with System(replace(setup, precision=precision)) as system:
        one = await checks(system, Ask(PROMPT, temperature=temperature, seed=5, max_tokens=24))
        while one.coming:
            for _ in range(chance.randint(0, 2)):
                tokens = one.drafted(chance.randint(0, 5), chance.randint(0, 2))
                assert await one.check(tokens) == one.confirmed(tokens), (len(one.coming), tokens)
            one.decide(chance.randint(1, 4))
        one.session.release()
        await system.until_nothing_is_held()


async def in_world(world: World, one: DraftChecks, *drafts: tuple[int, int]) -> Presence:
    """Checks of drafts of so many right and wrong tokens, two tokens being decided after each."""
    one.session.clock = world
    async with world.present(None) as presence:
        assert presence is not None
        for draft in drafts:
            tokens = one.drafted(*draft)
            assert await one.check(tokens) == one.confirmed(tokens)
            one.decide(2)
    return presence


async def cut_in_world(world: World, one: DraftChecks, draft: tuple[int, int]) -> tuple[Presence, int]:
    """A check that is cut when another device has done something; how long that took."""
    other = KnownQueue(world, Role.SAMPLER)
    async with world.present(None) as presence:
        assert presence is not None
        check = world.spawn(one.check(one.drafted(*draft)))
        await other.perform(WalkWork(1, 1), 1)
        cut_ns = world.now_ns() - presence.arrival_ns
        check.cancel()
        await asyncio.gather(check, return_exceptions=True)
        assert check.cancelled()
        one.decide(2)
    world.close(other)
    return presence, cut_ns


async def test_only_the_rows_that_decide_are_charged_to_the_drafters_device(setup: Setup) -> None:
    """What the verifier has computed lies in the memory that both reach: only the host reads it again."""
    async with System(emulated(setup, "npu-lpddr5-pim")) as system:
        one, world = await checks(system, Ask(PROMPT, max_tokens=24)), system.engine.world
        assert world is not None
        # Three tokens and what follows them are foreseen by the first check, of which two are decided by the second.
        presence = await in_world(world, one, (3, 1), (2, 2), (4, 0))
        told = [charge for charge in presence.charges if charge.role == "pre_verifier"]
        charged = [charge for charge in told if charge.rows]
        assert [charge.rows for charge in charged] == [1 + 4, 1 + 4 - 2, 1 + 4 - 1]
        assert [charge.cost.duration_ns for charge in told if not charge.rows] == [0, 0]  # of the prompt's three chunks
        assert {charge.cost.device for charge in told} == {"pim"}
        first = VerifyWork((ItemRows((80, 81, 82, 83, 84)),), (5,) * LAYERS, role=Role.PRE_VERIFIER)
        assert charged[0].cost.time_ns == world.hardware.pricing.price(first).time_ns
        assert sum(presence.time_ns().values()) == presence.total_ns


async def test_a_check_that_is_cut_costs_its_part_and_the_next_one_goes_on(setup: Setup) -> None:
    async with System(emulated(setup, "npu-lpddr5-pim")) as system:
        one, world = await checks(system, Ask(PROMPT, max_tokens=24)), system.engine.world
        assert world is not None
        whole = await in_world(world, one, (1, 1), (2, 2))
        whole_ns = max(charge.cost.duration_ns for charge in whole.charges if charge.role == "pre_verifier")
        cut, cut_ns = await cut_in_world(world, one, (2, 2))
        (part,) = [charge for charge in cut.charges if charge.role == "pre_verifier"]
        assert cut_ns <= part.cost.duration_ns < whole_ns
        after = await in_world(world, one, (3, 2))
        assert [charge.rows for charge in after.charges if charge.role == "pre_verifier"] == [1 + 5]


@pytest.mark.parametrize("late", ["drafter", "pre_verifier", "pre_sampler"])
async def test_a_workload_that_begins_at_once_repeats_whatever_is_found_last(
    late: str, setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From when the orchestrator says that it is ready."""
    opened = Link.open

    async def open_late(contract: Any, *rest: Any) -> Any:
        await asyncio.sleep(0.6 * (contract.unit == late))
        return await opened(contract, *rest)

    monkeypatch.setattr(Link, "open", open_late)
    asks = [Ask(PROMPT, "ahasd", 16, seed=i, arrival=Arrival(i * 10**6, 2)) for i in range(2)]
    async with System(emulated(setup, "npu-lpddr5-pim")) as system:
        first, second = [await system.generate_all(asks, 2) for _ in range(2)]
    assert account(first) == account(second)
    for answer in first:
        assert answer.statistics.ahead is not None
        assert answer.statistics.ahead.checks_passed + answer.statistics.ahead.checks_failed > 0


@pytest.mark.parametrize(
    ("hardware", "cost_as"),
    [("phone-flash-pim", "llama2-7b:int4+llama3.2-1b:int4"), ("npu-lpddr5-pim", "llama2-13b:int8+llama2-7b:int8")],
)
async def test_where_the_target_is_in_flash_or_does_not_fit_beside_the_draft_nobody_is_asked(
    setup: Setup, hardware: str, cost_as: str
) -> None:
    async with System(emulated(setup, hardware, cost_as)) as system:
        drafters, pre_verifiers = system.engine._fleet.drafters, system.engine._fleet.pre_verifiers
        assert drafters.description.holds_target
        await asyncio.sleep(1.0)  # twice as long as it takes to look for them
        assert not pre_verifiers.loads


async def test_where_a_verifier_streams_the_target_nobody_is_asked(setup: Setup) -> None:
    async with System(replace(setup, dram_budget="50%")) as system:
        await asyncio.sleep(1.0)
        one = DraftChecks(system.engine, Ask(PROMPT).request(), [1, 2, 3])
        assert await one.check([1]) == UNKNOWN
        assert not system.engine._fleet.pre_verifiers.loads
        one.session.release()
