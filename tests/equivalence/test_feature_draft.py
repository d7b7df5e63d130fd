"""A draft that reads the target's hidden rows changes no token, and is given these rows and no others."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from drafter.engine import DrafterEngine
from hetspec.decoding.sampling import Sampling
from hetspec.model.transformer import Span
from hetspec.rpc.messages import Draft, DraftItem, PassResult
from hetspec.rpc.work import ShouldStop
from orchestrator.engine.request import EmittedToken, GenerationRequest
from orchestrator.policies.mode import Part
from tests.draft_artefact import make_draft
from tests.early_exit_artefact import make_early_exit
from tests.equivalence.agreeing_draft import make_agreeing_draft, make_forgetful_target
from tests.equivalence.conversation import converse
from tests.equivalence.inprocess import open_model
from tests.equivalence.matrix import SPECULATIVE, Case, PlainTokens, check
from tests.schemas import grammar_of, random_schema
from tests.system import Answer, Ask, Setup, System

PRECISIONS = ("int8", "float32")
TEMPERATURES = (0.0, 0.8)
PROMPT_TOKENS = (1, 2, 31, 32, 150)  # around a KV page, and several


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_forgetful_target(tmp_path_factory.mktemp("forgetful"))


@pytest.fixture(scope="module")
def drafts(target: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path | None]:
    """Both with a head of a part of the vocabulary."""
    agreeing = make_agreeing_draft(tmp_path_factory.mktemp("agreeing"), target, head_vocab_size=330)
    random = make_draft(tmp_path_factory.mktemp("random"), target, seed=1, head_vocab_size=100, n_layers=2)
    return {"agreeing": agreeing, "random": random}


@pytest.fixture(scope="module")
def plain() -> PlainTokens:
    return PlainTokens()


CASES = {
    "agreeing": Case(draft="agreeing"),
    "random": Case(draft="random", modes=SPECULATIVE),
    "prefill of single tokens": Case(draft="agreeing", chunk_tokens=1, modes=SPECULATIVE, alone=False),
    "prefill by 7": Case(draft="agreeing", chunk_tokens=7, modes=SPECULATIVE, alone=False),
    "a quarter in memory": Case(draft="agreeing", dram_budget="25%", modes=SPECULATIVE, alone=False),
}


def asks_of(max_tokens: int = 20) -> list[Ask]:
    ids = np.random.default_rng(6).integers(3, 300, max(PROMPT_TOKENS)).tolist()
    return [
        Ask(tuple(ids[:length]), max_tokens=max_tokens, temperature=temperature, seed=100 + length)
        for length in PROMPT_TOKENS
        for temperature in TEMPERATURES
    ]


def of_the_model(answers: Sequence[Answer]) -> tuple[int, int]:
    """Nodes that the draft model proposed, and those of them that were accepted."""
    told = [answer.statistics for answer in answers]
    drafted = sum(statistics.drafted_by_source.get("model", 0) for statistics in told)
    return drafted, sum(statistics.accepted_by_source.get("model", 0) for statistics in told)


@pytest.mark.parametrize(
    ("name", "precision"), [*((name, "int8") for name in CASES), ("agreeing", "float32"), ("random", "float32")]
)
async def test_every_mode_says_what_plain_says(
    name: str, precision: str, target: Path, drafts: dict[str, Path | None], cache_dir: Path, plain: PlainTokens
) -> None:
    case = CASES[name]
    answers = await check(case, case.setup(target, cache_dir, precision, drafts), asks_of(), plain)
    drafted, accepted = of_the_model(answers)
    assert drafted > accepted
    assert case.draft == "random" or accepted > drafted / 10


@dataclass(frozen=True)
class Conditioned(Ask):
    sampling: Sampling = Sampling()
    min_tokens: int = 0

    def request(self, deadline: float | None = None) -> GenerationRequest:
        sampling = replace(self.sampling, temperature=self.temperature)
        return replace(super().request(deadline), sampling=sampling, min_tokens=self.min_tokens)


PENALTIES = (
    Sampling(repetition_penalty=1.3),
    Sampling(frequency_penalty=0.7, presence_penalty=-0.9),
    Sampling(top_k=20, top_p=0.9, min_p=0.01, bias=((7, 4.0), (51, -100.0), (60, 2.5))),
)


@pytest.mark.parametrize("draft", ["agreeing", "random"])
async def test_under_conditions_every_mode_says_what_plain_says(
    draft: str, target: Path, drafts: dict[str, Path | None], cache_dir: Path
) -> None:
    """Penalties, filters, bias, withheld end tokens, grammars."""
    prompt = tuple(range(50, 90))
    asks: list[Ask] = [
        Conditioned(prompt, "plain", 24, temperature, seed, 8, 3, sampling=sampling, min_tokens=7)
        for sampling in PENALTIES
        for seed, temperature in enumerate((0.0, 0.8, 0.8))
    ]
    asks += [
        Ask(prompt[seed:], "plain", 40, 0.8 * (seed % 2), seed, grammar=grammar_of(random_schema(seed)))
        for seed in range(6)
    ]
    async with System(Setup(target, cache_dir, draft=drafts[draft], chunk_tokens=16)) as system:
        plain = [answer.tokens for answer in await system.generate_all(asks)]
        for mode in SPECULATIVE:
            answers = await system.generate_all([replace(ask, mode=mode) for ask in asks])
            assert [answer.tokens for answer in answers] == plain
            assert of_the_model(answers)[0] > 0
        await system.until_nothing_is_held()
    assert len({tuple(tokens) for tokens in plain}) > len(PENALTIES)


class Told:
    """What a drafter is told: of each session, the tokens at its opening, and of each item the length and the rows."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.openings: dict[str, tuple[int, ...]] = {}
        self.rows: dict[str, list[tuple[int, bytes]]] = defaultdict(list)
        run = DrafterEngine.run

        def recorded(engine: DrafterEngine, items: Sequence[DraftItem], stop: ShouldStop) -> PassResult[Draft]:
            for item in items:
                update = item.update
                self.openings.setdefault(update.session, update.append)
                self.rows[update.session].append((update.length, item.hidden))
            return run(engine, items, stop)

        monkeypatch.setattr(DrafterEngine, "run", recorded)

    def of(self, prompt: Sequence[int]) -> list[tuple[int, bytes]]:
        """Of the session with this prompt."""
        (name,) = [name for name, opening in self.openings.items() if opening[: len(prompt)] == tuple(prompt)]
        return self.rows[name]


def target_rows(target: Path, precision: str, cache_dir: Path, ids: Sequence[int]) -> NDArray[np.float32]:
    """[len(ids), hidden], of one pass over all of them."""
    with open_model(target, precision, cache_dir, max_context=512) as model:
        rows, _ = model.transformer.run([Span(model.transformer.new_cache(), ids)])
    return rows


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("chunk_tokens", [1, 24, 256])
async def test_a_drafter_is_given_each_row_of_a_whole_pass_to_the_bit_and_once(
    chunk_tokens: int,
    precision: str,
    target: Path,
    drafts: dict[str, Path | None],
    cache_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """In mode lever of trees whose branches leave the target's pass early, too: of static ones, which are large."""
    modes = [*((mode, frozenset[Part]()) for mode in SPECULATIVE), ("lever", frozenset({Part.COST_TREE}))]
    asks = [
        Ask(tuple(range(20 + number, 90 + number)), mode, 40, temperature, seed=number, disabled=off)
        for number, (mode, off, temperature) in enumerate((*m, t) for m in modes for t in TEMPERATURES)
    ]
    told = Told(monkeypatch)
    early_exit = make_early_exit(tmp_path, target, cache_dir, layer=1, threshold=-2.2)
    setup = Setup(
        target, cache_dir, draft=drafts["agreeing"], precision=precision, chunk_tokens=chunk_tokens,
        early_exit=early_exit,
    )  # fmt: skip
    async with System(setup) as system:
        answers = await system.generate_all(asks)
    for ask, answer in zip(asks, answers, strict=True):
        rows = target_rows(target, precision, cache_dir, [*ask.prompt, *answer.tokens])
        given = 0
        for length, hidden in told.of(ask.prompt):
            count = len(hidden) // rows[0].nbytes
            assert hidden == rows[length - 1 - count : length - 1].tobytes()
            if count:
                assert given == length - 1 - count
                given = length - 1
        assert given > len(ask.prompt)
    assert sum(answer.statistics.pruned for answer in answers) > 0


async def test_conversations_say_the_same_with_and_without_the_prefix_cache(
    target: Path, drafts: dict[str, Path | None], cache_dir: Path
) -> None:
    """One token of what is shared is read again where a draft wants its row."""
    setup = Setup(target, cache_dir, draft=drafts["agreeing"], chunk_tokens=24)
    cases = [(mode, temperature) for mode in ("plain", *SPECULATIVE) for temperature in TEMPERATURES]
    async with System(setup) as bare:
        expected = [await converse(bare, mode, temperature, seed) for seed, (mode, temperature) in enumerate(cases)]
    async with System(replace(setup, prefix_tokens="50%")) as system:
        conversations = [converse(system, mode, temperature, seed) for seed, (mode, temperature) in enumerate(cases)]
        found = await asyncio.gather(*conversations)
    for (mode, _), turns, same in zip(cases, expected, found, strict=True):
        assert [turn.tokens for turn in turns] == [turn.tokens for turn in same]
        spared = 0 if mode == "plain" else 1
        assert [turn.cached for turn in same] == [max(0, turn.predicted - spared) for turn in same]


@pytest.mark.parametrize("chunk_tokens", [7, 256])
async def test_a_scored_prompt_has_the_same_logprobs_and_tokens(
    chunk_tokens: int, target: Path, drafts: dict[str, Path | None], cache_dir: Path
) -> None:
    asks = [Ask(tuple(range(30, 75)), mode, 24, 0.8, seed=5) for mode in ("plain", *SPECULATIVE)]
    setup = Setup(target, cache_dir, draft=drafts["agreeing"], chunk_tokens=chunk_tokens)
    async with System(setup) as system:
        told = [await scored(system, ask) for ask in asks]
    assert len(told[0][0]) == len(asks[0].prompt)
    assert told[1:] == [told[0]] * len(SPECULATIVE)


async def scored(system: System, ask: Ask) -> tuple[list[EmittedToken], list[EmittedToken]]:
    """Of the prompt, and of the answer."""
    request = replace(ask.request(), top_logprobs=2, scores_prompt=True)
    prompt, answer = list[EmittedToken](), list[EmittedToken]()
    async with aclosing(system.engine.generate(request)) as generation:
        async for emission in generation:
            prompt += emission.prompt
            answer += emission.tokens
    return prompt, answer
