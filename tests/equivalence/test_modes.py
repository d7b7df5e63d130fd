"""Speculation never changes a token: whatever the mode, draft, neighbours, prefill or budget, plain decoding's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.equivalence.matrix import SPECULATIVE, Case, PlainTokens, check, check_both_outcomes
from tests.equivalence.vocabulary_draft import make_vocabulary_draft
from tests.prompts import chat_ids, spread
from tests.system import Ask, Setup, System
from weight_store import shipped
from weight_store.config import embedded_model

PRECISIONS = ("int8", "float32")
TEMPERATURES = (0.0, 0.8)


@pytest.fixture(scope="module")
def plain() -> PlainTokens:
    return PlainTokens()


FULL = {
    "prompt lookup": Case(),
    "the target as its own draft": Case(draft="target", modes=SPECULATIVE),
    "a random small draft": Case(draft="random", modes=SPECULATIVE),
    "prefill of single tokens": Case(chunk_tokens=1, alone=False),
    "prefill by 7": Case(chunk_tokens=7, alone=False),
    "prefill by 64": Case(chunk_tokens=64, alone=False),
    "a quarter in memory": Case(draft="target", dram_budget="25%"),
}


# --- a tiny model: everything

TINY_PROMPT_TOKENS = (1, 31, 32, 150)  # around a KV page, and several


def tiny_asks(max_tokens: int = 20) -> list[Ask]:
    ids = np.random.default_rng(5).integers(3, 300, max(TINY_PROMPT_TOKENS)).tolist()
    return [
        Ask(tuple(ids[:length]), max_tokens=max_tokens, temperature=temperature, seed=100 + length)
        for length in TINY_PROMPT_TOKENS
        for temperature in TEMPERATURES
    ]


IN_FLOAT32 = ("prompt lookup", "the target as its own draft", "prefill by 7")


@pytest.mark.parametrize(
    ("precision", "name"), [*(("int8", name) for name in FULL), *(("float32", name) for name in IN_FLOAT32)]
)
async def test_tiny_model_says_the_same(
    name: str, precision: str, tiny: Path, tiny_random_draft: Path, cache_dir: Path, plain: PlainTokens
) -> None:
    drafts = {"none": None, "target": tiny, "random": tiny_random_draft}
    case = FULL[name]
    answers = await check(case, case.setup(tiny, cache_dir, precision, drafts), tiny_asks(), plain)
    check_both_outcomes(case, answers)


# --- the real model: eight at a time in int8; alone, in float32, with little memory and in every mode by `make soak`

SHORT = {
    ("int8", "prompt lookup"): Case(alone=False),
    ("int8", "the target as its own draft"): Case(draft="target", modes=("tree",), alone=False),
    ("int8", "the shipped draft"): Case(draft="shipped", modes=SPECULATIVE, alone=False),
}
OF_THE_REAL_MODEL = FULL | {"the shipped draft": Case(draft="shipped", modes=SPECULATIVE)}


@pytest.fixture(scope="session")
def real_random_draft(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_vocabulary_draft(tmp_path_factory.mktemp("vocabulary"), embedded_model())


def real_asks(prompts: int, max_tokens: int, temperatures: Sequence[float]) -> list[Ask]:
    return [
        Ask(chat_ids(prompt), max_tokens=max_tokens, temperature=temperature, seed=number)
        for number, prompt in enumerate(spread(prompts))
        for temperature in temperatures
    ]


async def check_real(
    case: Case, precision: str, asks: Sequence[Ask], cache_dir: Path, random_draft: Path, plain: PlainTokens
) -> None:
    target = embedded_model()
    drafts = {"none": None, "target": target, "random": random_draft, "shipped": shipped.DRAFT}
    answers = await check(case, case.setup(target, cache_dir, precision, drafts), asks, plain)
    check_both_outcomes(case, answers)


@pytest.mark.parametrize(("precision", "name"), SHORT)
async def test_real_model_says_the_same(
    name: str, precision: str, cache_dir: Path, real_random_draft: Path, plain: PlainTokens
) -> None:
    asks = [ask for number, ask in enumerate(real_asks(4, 24, TEMPERATURES)) if number % 4 in (0, 3)]
    await check_real(SHORT[precision, name], precision, asks, cache_dir, real_random_draft, plain)


@pytest.mark.soak
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", OF_THE_REAL_MODEL)
async def test_real_model_says_the_same_in_full(
    name: str, precision: str, cache_dir: Path, real_random_draft: Path, plain: PlainTokens
) -> None:
    asks = real_asks(24, 96, TEMPERATURES)
    await check_real(OF_THE_REAL_MODEL[name], precision, asks, cache_dir, real_random_draft, plain)


# --- bounds: of trees, of the context, of threads

CONTEXT = 512
BOUNDS = (("plain", 16, 5), ("chain", 64, 64), ("chain", 3, 9), ("tree", 256, 64), ("tree", 3, 2), ("tree", 1, 1))


def asks_to_the_end_of_the_context() -> list[Ask]:
    ids = tuple(np.random.default_rng(1).integers(3, 300, CONTEXT).tolist())
    return [
        Ask(ids[:length], mode, CONTEXT - length, temperature, seed=length, max_nodes=nodes, max_depth=depth)
        for length in (430, 500, 511)
        for temperature in TEMPERATURES
        for mode, nodes, depth in BOUNDS
    ]


@pytest.mark.parametrize("threads", [1, 2])
async def test_trees_of_any_size_say_the_same_up_to_the_end_of_the_context(
    threads: int, tiny: Path, cache_dir: Path, plain: PlainTokens
) -> None:
    asks = asks_to_the_end_of_the_context()
    bare = Setup(tiny, cache_dir, max_context=CONTEXT)
    expected = await plain.of(bare, asks)
    assert any(len(tokens) == ask.max_tokens > 50 for ask, tokens in zip(asks, expected, strict=True))
    async with System(replace(bare, draft=tiny, threads=threads, chunk_tokens=100)) as system:
        assert [answer.tokens for answer in await system.generate_all(asks)] == expected
