"""Whatever clock a server goes by, and whatever leaves a pass early: the tokens are the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from hetspec.hardware.cost import Component
from hetspec.hardware.cost_as import parse_cost_as
from hetspec.hardware.profile import load_profile
from hetspec.hardware.work import ItemRows, VerifyWork
from orchestrator.clock.settings import WorldSettings
from orchestrator.policies.mode import Part
from tests.early_exit_artefact import make_early_exit
from tests.faults.proxy import Proxy
from tests.system import Addresses, Answer, Ask, Requests, Setup, System

PACE = 50.0  # emulated seconds a second
MODELS = "llama2-7b:int4+llama3.2-1b:int4"
PHONE = WorldSettings(load_profile("oneplus12"), parse_cost_as(MODELS))
STATIC = frozenset({Part.COST_TREE, Part.NO_DRAFT, Part.CALIBRATION})
ASKS = [
    Ask(tuple(range(20 + seed, 60 + 3 * seed)), "lever", 20, 0.8 * (seed % 2), seed, 24, 6, disabled=off | exits)
    for seed in range(4)
    for off in (STATIC, frozenset[Part]())
    for exits in (frozenset[Part](), frozenset({Part.EARLY_EXIT}))
]


@pytest.fixture(scope="module")
def setup(tiny: Path, cache_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Setup:
    early_exit = make_early_exit(tmp_path_factory.mktemp("exit"), tiny, cache_dir, layer=1, threshold=-2.2)
    return Setup(tiny, cache_dir, draft=tiny, early_exit=early_exit)


class Other(Requests):
    """Another orchestrator, with a clock of its own, before units at these addresses."""

    def __init__(self, setup: Setup, addresses: Addresses) -> None:
        self._setup = setup
        self.addresses = addresses

    async def __aenter__(self) -> Other:
        await self._start_engine(self._setup)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.engine.close()


def told(answers: Sequence[Answer]) -> list[list[int]]:
    return [answer.tokens for answer in answers]


async def test_lever_says_the_same_by_every_clock_with_early_exit_and_without(setup: Setup) -> None:
    async with System(setup) as system:
        plain = [replace(ask, mode="plain", disabled=frozenset()) for ask in ASKS]
        want = told(await system.generate_all(plain))
        for world in (None, PHONE, replace(PHONE, pace=PACE)):
            async with Other(replace(setup, world=world), system.addresses) as other:
                answers = await other.generate_all(ASKS)
            assert told(answers) == want
            pruned = [answer.statistics.pruned for answer in answers]
            assert sum(pruned) > 0
            assert not any(n for n, ask in zip(pruned, ASKS, strict=True) if Part.EARLY_EXIT in ask.disabled)


async def test_what_a_lost_verifier_had_read_is_read_again_and_charged_as_rebuilding(setup: Setup) -> None:
    """Its connection breaks off in the middle of a request, once."""
    ask = Ask(tuple(range(30, 110)), "plain", 24)
    async with System(setup) as system:
        want = (await system.generate(ask)).tokens
        proxy = Proxy(int(system.addresses.verifier.rpartition(":")[2]))
        await proxy.start()
        emulated = replace(setup, world=WorldSettings(load_profile("npu-lpddr5-pim"), parse_cost_as(MODELS)))
        async with Other(emulated, replace(system.addresses, verifier=proxy.address)) as other:
            answer = await other.generate(ask, on_tokens=lambda tokens: len(tokens) == 8 and proxy.break_off())
            world = other.engine.world
        await proxy.close()
    assert answer.tokens == want
    assert world is not None
    presence = answer.statistics.presence
    assert presence is not None
    (again,) = [charge for charge in presence.charges if Component.REBUILD in charge.cost.time_ns]
    known = len(ask.prompt) + 8
    assert again.rows == known
    assert again.cost == world.hardware.pricing.price(rebuilt(known))
    assert presence.time_ns()["npu", "rebuild"] == again.cost.duration_ns > 0
    assert sum(presence.time_ns().values()) == presence.total_ns
    assert presence.energy_pj()["npu", "rebuild"] > 0


def rebuilt(tokens: int) -> VerifyWork:
    """All of them in one pass; the tiny target has four layers."""
    return VerifyWork((ItemRows(tuple(range(1, tokens + 1))),), (tokens,) * 4, rebuilt=True)
