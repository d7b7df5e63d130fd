"""Drafter or verifier killed under streams whose draft reads the target's rows: no token changes, drafts come back."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from tests.equivalence.agreeing_draft import make_agreeing_draft, make_forgetful_target
from tests.system import Ask, Processes, Setup, System, until

pytestmark = pytest.mark.asyncio(loop_scope="module")

TOKENS = 120
MODES = ("plain", "chain", "tree", "ahasd", "full")
ASKS = [
    Ask(tuple(range(30 + number, 100 + number)), mode, TOKENS, temperature, seed=number)
    for number, (mode, temperature) in enumerate((m, t) for m in MODES for t in (0.0, 0.8))
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def processes(cache_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Processes]:
    target = make_forgetful_target(tmp_path_factory.mktemp("target"))
    draft = make_agreeing_draft(tmp_path_factory.mktemp("draft"), target, head_vocab_size=330)
    setup = Setup(target, cache_dir, draft=draft, chunk_tokens=32)
    async with Processes(setup, tmp_path_factory.mktemp("logs")) as started:
        yield started


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def expected(processes: Processes) -> list[list[int]]:
    """What plain decoding says, undisturbed and without a draft."""
    async with System(replace(processes.setup, draft=None)) as system:
        answers = await system.generate_all([replace(ask, mode="plain") for ask in ASKS], at_once=1)
    assert sum(len(answer.tokens) for answer in answers) > len(ASKS) * TOKENS // 2
    return [answer.tokens for answer in answers]


@pytest.mark.parametrize("unit", ["drafter", "verifier"])
async def test_a_unit_killed_in_the_middle_changes_no_token(
    unit: str, processes: Processes, expected: list[list[int]]
) -> None:
    struck: list[int] = []

    def strike(tokens: list[int]) -> None:
        if not struck and len(tokens) >= TOKENS // 4:
            struck.append(len(tokens))
            processes.cycle(unit, signal.SIGKILL)

    answers = await asyncio.gather(*(processes.generate(ask, on_tokens=strike) for ask in ASKS))
    assert [answer.tokens for answer in answers] == expected
    assert struck
    await processes.settle()


async def test_a_session_goes_on_drafting_with_another_drafter(processes: Processes, expected: list[list[int]]) -> None:
    """It is held while the drafter is killed and started again; the new one has none of the rows that came before."""
    place = next(place for place, ask in enumerate(ASKS) if (ask.mode, ask.temperature) == ("chain", 0.0))
    generation = processes.engine.generate(ASKS[place].request())
    tokens = [token.id for _ in range(4) for token in (await anext(generation)).tokens]
    processes.cycle("drafter", signal.SIGKILL)
    await until(lambda: processes.all_done and processes.engine.replicas()["drafter"] == 1, 120)
    before = generation.statistics.accepted_by_source.get("model", 0)
    async for emission in generation:
        tokens += [token.id for token in emission.tokens]
    assert tokens == expected[place]
    assert generation.statistics.accepted_by_source["model"] > before + 10
    await processes.settle()
