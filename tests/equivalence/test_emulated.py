"""Emulated time changes no token, and is the same whatever the host does."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from hetspec.hardware.cost_as import parse_cost_as
from hetspec.hardware.energy import static_pj
from hetspec.hardware.profile import load_profile
from orchestrator.clock.clock import Arrival
from orchestrator.clock.presence import Presence
from orchestrator.clock.settings import WorldSettings
from tests.system import Answer, Ask, Setup, System

PROMPTS = (tuple(range(30, 110)), (7,), tuple(range(40, 60)) * 2)
ASKS = [
    Ask(prompt, mode, max_tokens=16, temperature=temperature, seed=3)
    for mode in ("plain", "chain", "tree")
    for prompt in PROMPTS
    for temperature in (0.0, 0.8)
]
WORKLOAD = [replace(ASKS[2 * i], arrival=Arrival(i * 5_000_000, 8)) for i in range(8)]
COST_AS = "llama2-7b:int4+llama3.2-1b:int4"
# The drafter shares the verifier's device; has another; has another, and the target is read from flash.
HARDWARE = ("oneplus12", "npu-lpddr5-pim", "phone-flash-pim")


@pytest.fixture
def host(tiny: Path, tiny_random_draft: Path, cache_dir: Path) -> Setup:
    return Setup(tiny, cache_dir, draft=tiny_random_draft)


def emulated(setup: Setup, hardware: str) -> Setup:
    return replace(setup, world=WorldSettings(load_profile(hardware), parse_cost_as(COST_AS)))


def presences(answers: list[Answer]) -> list[Presence]:
    found = [answer.statistics.presence for answer in answers]
    return [presence for presence in found if presence is not None]


def account(answers: list[Answer]) -> list[tuple[object, ...]]:
    return [(p.total_ns, p.token_ns, dict(p.time_ns()), dict(p.energy_pj())) for p in presences(answers)]


def check_sums(system: System, told: list[Presence]) -> None:
    """All sessions that the world has seen."""
    world = system.engine.world
    assert world is not None
    dynamic: Counter[str] = Counter()
    sessions: Counter[str] = Counter(world.unowned_pj)
    for presence in told:
        assert sum(presence.time_ns().values()) == presence.total_ns > 0
        for (device, _), pj in presence.energy_pj().items():
            sessions[device] += pj
        for charge in presence.charges:
            for use in charge.uses:
                dynamic[use.device] += use.energy_pj
    static = {device: static_pj(uw, 0, world.now_ns()) for device, uw in world.hardware.static_uw.items()}
    drawn = {device: static.get(device, 0) + dynamic[device] for device in static.keys() | dynamic.keys()}
    assert Counter(sessions) == Counter(drawn)  # a device that is missing drew nothing


@pytest.mark.parametrize("hardware", HARDWARE)
async def test_tokens_are_the_host_clocks_and_time_and_energy_add_up(host, hardware):
    async with System(host) as system:
        want = [(await system.generate(ask)).tokens for ask in ASKS]
    async with System(emulated(host, hardware)) as system:
        answers = [await system.generate(ask) for ask in ASKS]
        assert [answer.tokens for answer in answers] == want
        check_sums(system, presences(answers))


@pytest.mark.parametrize("hardware", HARDWARE)
async def test_a_closed_workload_takes_the_same_time_to_the_nanosecond_also_in_another_system(host, hardware):
    accounts = []
    for _ in range(2):
        async with System(emulated(host, hardware)) as system:
            first = await system.generate_all(WORKLOAD, at_once=len(WORKLOAD))
            again = await system.generate_all(WORKLOAD, at_once=len(WORKLOAD))
            check_sums(system, presences(first + again))
        assert [answer.tokens for answer in again] == [answer.tokens for answer in first]
        accounts += [account(first)]
        times = [[p.total_ns for p in presences(answers)] for answers in (first, again)]
        assert times[0] == times[1]
    assert accounts[0] == accounts[1]
