"""Structured output is exact under speculation: valid documents, plain decoding's tokens, drafts that hold."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
import pytest_asyncio

from hetspec.text.tokenizer import TextModel
from tests.schemas import grammar_of, random_schema
from tests.system import Answer, Ask, Setup, System

pytestmark = pytest.mark.asyncio(loop_scope="module")

SPECULATIVE = ("chain", "tree", "lever", "ahasd", "full")
MAX_TOKENS = 72
SCHEMAS = 100


def asks_of(count: int) -> list[Ask]:
    """Half of them at temperature 0, half at 0.8."""
    return [
        Ask(
            (40 + seed % 50, 5, 9), "plain", MAX_TOKENS, 0.8 * (seed % 2), seed, grammar=grammar_of(random_schema(seed))
        )
        for seed in range(count)
    ]


def documents_of(text: TextModel, asks: Sequence[Ask], answers: Sequence[Answer]) -> list[object]:
    """Of the answers that were not cut: each checked against its schema, and written as promised."""
    documents = []
    for ask, answer in zip(asks, answers, strict=True):
        assert ask.grammar is not None
        if answer.tokens[-1] not in text.spec.end_ids:
            assert len(answer.tokens) == ask.max_tokens
            continue
        detokenizer = text.detokenizer(ask.prompt)
        written = "".join(map(detokenizer.push, answer.tokens)) + detokenizer.flush()
        document = json.loads(written)
        jsonschema.validate(document, json.loads(ask.grammar.source))
        documents.append(document)
    return documents


def accept_length(answers: Sequence[Answer]) -> float:
    return sum(a.statistics.emitted for a in answers) / sum(a.statistics.rounds for a in answers)


def check_acceptance(answer: Answer, max_depth: int, *, is_own_chain: bool) -> None:
    """What must follow is drafted and accepted. A chain of the target's own is lost behind the end token alone."""
    drafted, accepted = answer.statistics.drafted_by_source, answer.statistics.accepted_by_source
    assert accepted["grammar"] == drafted["grammar"] > 0
    if is_own_chain:
        assert answer.statistics.drafted - answer.statistics.accepted < max_depth


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plain(tiny: Path, cache_dir: Path) -> list[Answer]:
    """Of plain decoding, which valid documents are asked of."""
    asks = asks_of(SCHEMAS)
    async with System(Setup(tiny, cache_dir)) as system:
        answers = await system.generate_all(asks)
        assert len(documents_of(system.engine.text, asks, answers)) >= 0.8 * SCHEMAS
    return answers


@pytest.mark.parametrize(
    ("draft", "schemas"),
    [
        ("itself", 40),
        ("random", 40),
        ("none", 40),
        *(pytest.param(draft, SCHEMAS, marks=pytest.mark.soak) for draft in ("itself", "random", "none")),
    ],
)
async def test_schemas_give_valid_documents_and_plain_tokens_in_every_mode(
    draft: str,
    schemas: int,
    tiny: Path,
    tiny_random_draft: Path,
    cache_dir: Path,
    plain: list[Answer],
    request: pytest.FixtureRequest,
) -> None:
    if draft == "itself":
        request.getfixturevalue("no_lookup")
    asks = asks_of(schemas)
    drafts = {"itself": tiny, "random": tiny_random_draft, "none": None}
    async with System(Setup(tiny, cache_dir, draft=drafts[draft])) as system:
        for mode in SPECULATIVE:
            answers = await system.generate_all([replace(ask, mode=mode) for ask in asks])
            assert [a.tokens for a in answers] == [a.tokens for a in plain[:schemas]]
            for ask, answer in zip(asks, answers, strict=True):
                check_acceptance(answer, ask.max_depth, is_own_chain=(draft, mode) == ("itself", "chain"))
            print(f"draft {draft}, {mode}: {accept_length(answers):.2f} tokens a pass")
        await system.until_nothing_is_held()
