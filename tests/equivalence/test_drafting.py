"""What chooses the length of chains never changes a token, and chooses it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.policies.drafting_algorithm import Drafting
from tests.acceptance_artefact import make_acceptance
from tests.schemas import grammar_of, random_schema
from tests.system import Answer, Ask, Setup, System

NEVER = -20.0  # an acceptance head's logit


def asks_of(count: int) -> list[Ask]:
    """Half at temperature 0, a grammar in some."""
    return [
        Ask(
            tuple(range(20 + seed, 60 + 2 * seed)),
            "plain",
            20,
            0.8 * (seed % 2),
            seed,
            max_depth=8,
            grammar=grammar_of(random_schema(seed)) if seed % 4 == 3 else None,
        )
        for seed in range(count)
    ]


def drafted_a_round(answers: list[Answer]) -> float:
    """By the draft model."""
    drafted = sum(answer.statistics.drafted_by_source.get("model", 0) for answer in answers)
    return drafted / sum(answer.statistics.rounds for answer in answers)


@pytest.mark.parametrize("own_draft", [True, False])
async def test_every_algorithm_says_what_plain_decoding_says(
    own_draft: bool, tiny: Path, tiny_random_draft: Path, cache_dir: Path, tmp_path: Path
) -> None:
    draft = tiny if own_draft else tiny_random_draft
    head = make_acceptance(tmp_path / "head", tiny, draft, cache_dir, NEVER)
    asks, lengths = asks_of(8), dict[Drafting, float]()
    async with System(Setup(tiny, cache_dir, draft=draft, acceptance=head)) as system:
        expected = [answer.tokens for answer in await system.generate_all(asks, 4)]
        assert system.engine.judges_acceptance
        for drafting in Drafting:
            chains = [replace(ask, mode="chain", drafting=drafting) for ask in asks]
            answers = await system.generate_all(chains, 4)
            assert [answer.tokens for answer in answers] == expected
            free = [one for one, ask in zip(answers, asks, strict=True) if ask.grammar is None]
            lengths[drafting] = drafted_a_round(free)
        await system.until_nothing_is_held()
    if own_draft:
        assert lengths[Drafting.FIXED] > 3
        for drafting in (Drafting.SVIP, Drafting.ADAEDL):  # a model that knows nothing is never sure
            assert 0 < lengths[drafting] <= 1
        assert 0 < lengths[Drafting.SPECDECPP] <= 1  # its head believes in no token
