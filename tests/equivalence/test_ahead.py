"""Drafting ahead never changes a token: whatever the draft, the outcomes, the parts, the clock and the neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from hetspec.hardware.cost_as import parse_cost_as
from hetspec.hardware.profile import load_profile
from orchestrator.clock.clock import Arrival
from orchestrator.clock.settings import WorldSettings
from orchestrator.policies.mode import Mode, Objective, Part, parts_of
from tests.equivalence.test_emulated import account, check_sums, presences
from tests.schemas import grammar_of, random_schema
from tests.system import Answer, Ask, Setup, System

COST_AS = "llama3.2-3b:int8+llama3.2-1b:int8"  # both fit into the ranks of the PIM
ASYNC = (Mode.AHASD, Mode.FULL)


def asks_of(count: int, first: int = 0) -> list[Ask]:
    """Half at temperature 0; one outcome and several; each part off in some; a grammar in some; some learn together;
    some for little energy."""
    return [ask_of(seed) for seed in range(first, first + count)]


def ask_of(seed: int) -> Ask:
    mode = ASYNC[seed // 2 % 2]
    parts = sorted(parts_of(mode) - {Part.LOOK_AHEAD})
    return Ask(
        tuple(range(20 + seed, 60 + 2 * seed)),
        mode,
        24,
        0.8 * (seed % 2),
        seed,
        max_nodes=24,
        max_depth=4,
        outcomes=(1, 4, 2)[seed % 3],
        grammar=grammar_of(random_schema(seed)) if seed % 5 == 4 else None,
        disabled=frozenset() if seed % 4 < 2 else frozenset({parts[seed % len(parts)]}),
        shares_edc=seed % 3 < 2,
        fits_tvc=seed % 4 in (1, 2),
        objective=Objective.ENERGY if seed // 3 % 2 else Objective.LATENCY,
    )


def plain_of(asks: Sequence[Ask]) -> list[Ask]:
    return [replace(ask, mode="plain", disabled=frozenset()) for ask in asks]


def emitted(answers: Sequence[Answer]) -> list[list[int]]:
    return [answer.tokens for answer in answers]


def check_reports(answers: Sequence[Answer]) -> None:
    for answer in answers:
        report = answer.statistics.ahead
        assert report is not None
        assert report.drafted == report.accepted + report.rejected + report.confirmed + report.dropped


@pytest.mark.parametrize("draft", ["itself", "random"])
@pytest.mark.parametrize("holds_target", [False, True])
async def test_what_is_said_is_what_plain_decoding_says(
    draft: str, holds_target: bool, tiny: Path, tiny_random_draft: Path, cache_dir: Path
) -> None:
    asks = asks_of(16)
    checkpoint = tiny if draft == "itself" else tiny_random_draft
    async with System(Setup(tiny, cache_dir, draft=checkpoint, holds_target=holds_target)) as system:
        expected = emitted(await system.generate_all(plain_of(asks), 8))
        for at_once in (1, 8):
            answers = await system.generate_all(asks, at_once)
            assert emitted(answers) == expected
            check_reports(answers)
        await system.until_nothing_is_held()
    reports = [answer.statistics.ahead for answer in answers if answer.statistics.ahead is not None]
    if draft == "itself":
        assert sum(report.survived for report in reports) > 0
        assert sum(report.confirmed for report in reports) > 0


@pytest.mark.parametrize("hardware", ["npu-lpddr5-pim", "phone-flash-pim"])
async def test_emulated_time_changes_no_token_adds_up_and_repeats(
    hardware: str, tiny: Path, tiny_random_draft: Path, cache_dir: Path
) -> None:
    asks = asks_of(12)
    world = WorldSettings(load_profile(hardware), parse_cost_as(COST_AS))
    setup = Setup(tiny, cache_dir, draft=tiny, holds_target=True)
    async with System(setup) as system:
        expected = emitted(await system.generate_all(plain_of(asks), 8))
    together = [replace(ask, arrival=Arrival(i * 3_000_000, 12)) for i, ask in enumerate(asks)]
    async with System(replace(setup, world=world)) as system:
        first = await system.generate_all(together, 12)
    async with System(replace(setup, world=world)) as system:
        alone = [await system.generate(ask) for ask in asks]
        later = [await system.generate_all(together, 12) for _ in range(2)]
        check_sums(system, presences([*alone, *later[0], *later[1]]))
    for answers in (first, alone, *later):
        assert emitted(answers) == expected
        check_reports(answers)
    assert account(first) == account(later[0]) == account(later[1])


@pytest.mark.parametrize("mode", ASYNC)
async def test_who_waits_for_anothers_reading_of_the_prompt_drafts_where_it_asked(
    mode: Mode, tiny: Path, cache_dir: Path
) -> None:
    """Meanwhile its verifier goes on."""
    asks = [Ask(tuple(range(20, 320)), mode, 24, 0.8, seed) for seed in range(4)]
    world = WorldSettings(load_profile("npu-lpddr5-pim"), parse_cost_as("llama2-13b:int8+llama2-7b:int8"))
    async with System(Setup(tiny, cache_dir, draft=tiny, prefix_tokens="4096", world=world)) as system:
        expected = emitted(await system.generate_all(plain_of(asks), 4))
        answers = await system.generate_all(asks, 4)
        faults = [
            sample
            for metric in system.registry.collect()
            for sample in metric.samples
            if sample.name == "hetspec_unit_faults_total" and sample.value
        ]
    assert emitted(answers) == expected
    assert not faults
