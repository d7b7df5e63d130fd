"""Modes that do not wait, where every task of every service is late at random, and services are killed at random: the
same tokens; and where time is emulated and nobody dies, the same nanoseconds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hetspec.hardware.cost_as import parse_cost_as
from hetspec.hardware.profile import load_profile
from hetspec.model import weights
from orchestrator.clock.clock import Arrival
from orchestrator.clock.settings import WorldSettings
from orchestrator.policies.drafting_algorithm import Drafting
from tests.acceptance_artefact import make_acceptance
from tests.equivalence.agreeing_draft import make_agreeing_draft, make_forgetful_target
from tests.equivalence.test_emulated import account
from tests.faults.chaos import Chaos, killed
from tests.faults.traffic import Traffic, pipelines
from tests.faults.unsteady import Unsteady
from tests.system import Answer, Ask, Setup, System, until

WORLD = WorldSettings(load_profile("npu-lpddr5-pim"), parse_cost_as("llama3.2-3b:int8+llama3.2-1b:int8"))
AT_ONCE = 6
LATE_S = 0.01
PLAIN = [
    Ask(tuple(range(30 + 7 * seed, 90 + 9 * seed)), "plain", 32, temperature, seed)
    for seed, temperature in ((1, 0.0), (2, 0.8))
]


@pytest.fixture(scope="module")
def setup(tmp_path_factory: pytest.TempPathFactory) -> Setup:
    """The draft is right often, and not always."""
    folder = tmp_path_factory.mktemp("unsteady")
    target = make_forgetful_target(folder / "target")
    draft = make_agreeing_draft(folder / "draft", target, head_vocab_size=330)
    head = make_acceptance(folder / "head", target, draft, folder)
    return Setup(target, folder, draft=draft, chunk_tokens=32, acceptance=head, holds_target=True)


async def undisturbed(setup: Setup) -> dict[Ask, list[int]]:
    async with System(setup) as system:
        answers = await system.generate_all(PLAIN)
    return {each: answer.tokens for ask, answer in zip(PLAIN, answers, strict=True) for each in pipelines(ask)}


@pytest.mark.parametrize(
    ("kills", "seed", "world"),
    [
        (4, 1, None),
        pytest.param(120, 2, None, marks=[pytest.mark.soak, pytest.mark.timeout(0)]),
        pytest.param(120, 3, WORLD, marks=[pytest.mark.soak, pytest.mark.timeout(0)]),
    ],
    ids=["host", "long", "long, emulated"],
)
async def test_lateness_and_deaths_change_no_token(
    kills: int, seed: int, world: WorldSettings | None, setup: Setup, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = await undisturbed(setup)
    async with Unsteady(replace(setup, world=world), seed, LATE_S) as system:
        traffic = Traffic(system.engine, expected, AT_ONCE)
        async with traffic.running():
            report = await Chaos(system, traffic, seed, (killed,), mean_gap_s=0.5).strike(kills)
            await until(lambda: traffic.answered >= len(expected) + AT_ONCE, 120)
        await system.until_nothing_is_held()
    with capsys.disabled():
        print(f"\n{report.table()}\n{traffic.told()}")
    assert traffic.lost == []
    assert traffic.differing == []
    assert traffic.rebuilds > 0


async def test_lateness_changes_no_emulated_nanosecond(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a closed workload; the target's layers come over the wire as late."""
    monkeypatch.setattr(weights, "_open_local", lambda grant: None)
    asks = [
        replace(each, max_tokens=16, arrival=Arrival(i * 3_000_000, len(Drafting) + 1))
        for i, each in enumerate(pipelines(PLAIN[1])[1::2])
    ]
    streaming = replace(setup, world=WORLD, dram_budget="50%")

    async def told(system: System | Unsteady) -> list[Answer]:
        async with system:
            return await system.generate_all(asks, len(asks))

    punctual = await told(System(streaming))
    late = await told(Unsteady(streaming, 5, LATE_S))
    assert account(late) == account(punctual)
    assert [answer.tokens for answer in late] == [answer.tokens for answer in punctual]
