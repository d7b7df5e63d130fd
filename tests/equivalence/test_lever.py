"""Mode lever never changes a token: whatever its costs, objective, parts, neighbours, grammar and prefix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from hetspec.drafting.costs import CostCurve, DraftCosts
from orchestrator.policies.costs import CostQuery, RoundTook
from orchestrator.policies.mode import Mode, Objective, Part, parts_of
from tests.schemas import grammar_of, random_schema
from tests.system import Answer, Ask, Setup, System

CHEAP = DraftCosts(100, CostCurve(((1, 100_000), (65, 100_640))), CostCurve(((1, 5), (8, 10))))
DEAR = DraftCosts(100, CostCurve.padded([(4, 1000), (16, 1900), (65, 4000)]), CostCurve(((1, 400), (8, 900))))
PARTS: tuple[frozenset[Part], ...] = (frozenset(), *(frozenset({part}) for part in sorted(parts_of(Mode.LEVER))))


@dataclass(frozen=True)
class Told:
    """The same at any time, but for energy, which goes up faster with rows."""

    latency: DraftCosts

    def costs(self, query: CostQuery) -> DraftCosts:
        if query.objective is Objective.LATENCY:
            return self.latency
        steep = tuple((rows, cost + 50 * (rows - 1)) for rows, cost in self.latency.verify.points)
        return replace(self.latency, verify=CostCurve(steep))

    def learn(self, took: RoundTook) -> None:
        """Nothing."""


def asks_of(count: int) -> list[Ask]:
    """Half at temperature 0, half of them for energy, each part off in some, a grammar in some."""
    return [
        Ask(
            tuple(range(20 + seed, 60 + 2 * seed)),
            "lever",
            24,
            0.8 * (seed % 2),
            seed,
            max_nodes=64,
            max_depth=12,
            grammar=grammar_of(random_schema(seed)) if seed % 5 == 4 else None,
            objective=Objective.ENERGY if seed // 2 % 2 else Objective.LATENCY,
            disabled=PARTS[seed % len(PARTS)],
        )
        for seed in range(count)
    ]


def plain_of(asks: Sequence[Ask]) -> list[Ask]:
    return [replace(ask, mode="plain", disabled=frozenset()) for ask in asks]


def emitted(answers: Sequence[Answer]) -> list[list[int]]:
    return [answer.tokens for answer in answers]


@pytest.mark.parametrize("costs", [CHEAP, DEAR], ids=["cheap rows", "dear buckets"])
@pytest.mark.parametrize("own_draft", [True, False])
async def test_lever_says_what_plain_decoding_says(
    costs: DraftCosts, own_draft: bool, tiny: Path, tiny_random_draft: Path, cache_dir: Path
) -> None:
    asks = asks_of(12)
    async with System(Setup(tiny, cache_dir, draft=tiny if own_draft else tiny_random_draft)) as system:
        system.engine._costs = Told(costs)
        expected = emitted(await system.generate_all(plain_of(asks), 8))
        for at_once in (1, 8):
            answers = await system.generate_all(asks, at_once)
            assert emitted(answers) == expected
        await system.until_nothing_is_held()
    if own_draft and costs is CHEAP:
        assert sum(answer.statistics.accepted for answer in answers) > 0


async def test_what_was_shared_before_is_taken_over(tiny: Path, cache_dir: Path) -> None:
    asks = [replace(ask, prompt=tuple(range(5, 90)) + ask.prompt) for ask in asks_of(8)]
    async with System(Setup(tiny, cache_dir, draft=tiny, prefix_tokens="50%")) as system:
        system.engine._costs = Told(CHEAP)
        expected = emitted(await system.generate_all(plain_of(asks), 1))
        answers = await system.generate_all(asks, 1)
    assert emitted(answers) == expected
    assert all(answer.statistics.cached_tokens > 0 for answer in answers)


async def test_a_draft_that_does_not_pay_is_asked_for_less_and_less(
    tiny: Path, tiny_random_draft: Path, cache_dir: Path
) -> None:
    """Its steps cost ten times what the target's pass does."""
    useless = DraftCosts(0, CostCurve(((1, 100), (65, 100))), CostCurve(((1, 1000), (8, 1000))))
    ask = Ask(tuple(range(20, 50)), "lever", 100, max_nodes=64, max_depth=12)
    kept = replace(ask, disabled=frozenset({Part.NO_DRAFT}))
    async with System(Setup(tiny, cache_dir, draft=tiny_random_draft)) as system:
        system.engine._costs = Told(useless)
        rests, asks_always = await system.generate_all([ask, kept], 1)
    assert rests.tokens == asks_always.tokens
    assert rests.statistics.lever is not None
    assert rests.statistics.lever.rested >= 4 + 8 + 16
    assert asks_always.statistics.lever is not None
    assert asks_always.statistics.lever.rested == 0
