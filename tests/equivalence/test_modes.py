"""Speculation never changes a token: whatever the mode, draft, neighbours, prefill or budget, plain decoding's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from tests.equivalence.vocabulary_draft import make_vocabulary_draft
from tests.prompts import chat_ids, spread
from tests.system import Answer, Ask, Setup, System
from weight_store.config import embedded_model

PRECISIONS = ("int8", "float32")
TEMPERATURES = (0.0, 0.8)
SPECULATIVE = ("chain", "tree")


class PlainTokens:
    """What plain decoding says to each request alone, whole prompts in one pass, everything in memory."""

    def __init__(self) -> None:
        self._known: dict[tuple[Path, str, Ask], list[int]] = {}

    async def of(self, setup: Setup, asks: Sequence[Ask]) -> list[list[int]]:
        keys = [(setup.target, setup.precision, _as_plain(ask)) for ask in asks]
        if not all(key in self._known for key in keys):
            bare = Setup(setup.target, setup.cache_dir, precision=setup.precision, max_context=setup.max_context)
            async with System(bare) as system:
                for key in keys:
                    if key not in self._known:
                        self._known[key] = (await system.generate(key[2])).tokens
        return [self._known[key] for key in keys]


def _as_plain(ask: Ask) -> Ask:
    return replace(ask, mode="plain", max_nodes=1, max_depth=1)


@pytest.fixture(scope="module")
def plain() -> PlainTokens:
    return PlainTokens()


@dataclass(frozen=True)
class Case:
    """How a system differs from the plain one. alone: each request by itself besides with 7 neighbours."""

    draft: str = "none"
    dram_budget: str = "0"
    chunk_tokens: int = 256
    modes: tuple[str, ...] = ("plain", *SPECULATIVE)
    alone: bool = True

    def setup(self, target: Path, cache_dir: Path, precision: str, drafts: dict[str, Path | None]) -> Setup:
        return Setup(
            target,
            cache_dir,
            draft=drafts[self.draft],
            precision=precision,
            dram_budget=self.dram_budget,
            chunk_tokens=self.chunk_tokens,
            max_context=4096,
        )


FULL = {
    "prompt lookup": Case(),
    "the target as its own draft": Case(draft="target", modes=SPECULATIVE),
    "a random small draft": Case(draft="random", modes=SPECULATIVE),
    "prefill of single tokens": Case(chunk_tokens=1, alone=False),
    "prefill by 7": Case(chunk_tokens=7, alone=False),
    "prefill by 64": Case(chunk_tokens=64, alone=False),
    "a quarter in memory": Case(draft="target", dram_budget="25%"),
}


def with_modes(asks: Sequence[Ask], modes: Sequence[str]) -> list[Ask]:
    return [replace(ask, mode=mode) for ask in asks for mode in modes]


async def check(case: Case, setup: Setup, asks: Sequence[Ask], plain: PlainTokens) -> list[Answer]:
    """Alone where the case says so, and eight at a time; returns the speculative answers."""
    asks = with_modes(asks, case.modes)
    expected = await plain.of(setup, asks)
    answers: list[Answer] = []
    async with System(setup) as system:
        for at_once in (1, 8) if case.alone else (8,):
            found = await system.generate_all(asks, at_once)
            assert [answer.tokens for answer in found] == expected, f"{at_once} at once"
            answers += found
        await system.until_nothing_is_held()
    assert sum(map(len, expected)) > len(asks) * asks[0].max_tokens // 2, "too few tokens to prove anything"
    return [answer for answer in answers if answer.statistics.mode != "plain"]


def check_both_outcomes(case: Case, answers: Sequence[Answer]) -> None:
    """Where nothing is accepted, or nothing refused, nothing is proved: the drafts must have met with both."""
    accepted = sum(answer.statistics.accepted for answer in answers)
    verified = sum(answer.statistics.verified for answer in answers)
    assert verified > accepted
    assert accepted > 0 or case.draft == "random"


# --- a tiny model: everything

TINY_PROMPT_TOKENS = (1, 31, 32, 150)  # around a KV page, and several


def tiny_asks(max_tokens: int = 32) -> list[Ask]:
    ids = np.random.default_rng(5).integers(3, 300, max(TINY_PROMPT_TOKENS)).tolist()
    return [
        Ask(tuple(ids[:length]), max_tokens=max_tokens, temperature=temperature, seed=100 + length)
        for length in TINY_PROMPT_TOKENS
        for temperature in TEMPERATURES
    ]


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", FULL)
async def test_tiny_model_says_the_same(
    name: str, precision: str, tiny: Path, tiny_random_draft: Path, cache_dir: Path, plain: PlainTokens
) -> None:
    drafts = {"none": None, "target": tiny, "random": tiny_random_draft}
    case = FULL[name]
    answers = await check(case, case.setup(tiny, cache_dir, precision, drafts), tiny_asks(), plain)
    check_both_outcomes(case, answers)


# --- the real model

SHORT = {
    ("int8", "prompt lookup"): Case(alone=False),
    ("int8", "the target as its own draft"): Case(draft="target", modes=("tree",), alone=False),
    ("int8", "a random small draft, a quarter in memory, prefill by 7"): Case(
        draft="random", dram_budget="25%", chunk_tokens=7, modes=("tree",), alone=False
    ),
    ("float32", "prompt lookup"): Case(modes=SPECULATIVE, alone=False),
}


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
    drafts = {"none": None, "target": target, "random": random_draft}
    answers = await check(case, case.setup(target, cache_dir, precision, drafts), asks, plain)
    check_both_outcomes(case, answers)


@pytest.mark.parametrize(("precision", "name"), SHORT)
async def test_real_model_says_the_same(
    name: str, precision: str, cache_dir: Path, real_random_draft: Path, plain: PlainTokens
) -> None:
    asks = [ask for number, ask in enumerate(real_asks(4, 32, TEMPERATURES)) if number % 4 in (0, 3)]
    await check_real(SHORT[precision, name], precision, asks, cache_dir, real_random_draft, plain)


@pytest.mark.soak
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", FULL)
async def test_real_model_says_the_same_in_full(
    name: str, precision: str, cache_dir: Path, real_random_draft: Path, plain: PlainTokens
) -> None:
    asks = real_asks(24, 96, TEMPERATURES)
    await check_real(FULL[name], precision, asks, cache_dir, real_random_draft, plain)


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
