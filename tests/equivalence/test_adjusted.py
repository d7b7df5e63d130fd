"""With penalties, bias and withheld tokens on, speculation still emits what plain decoding emits, and loses nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from hetspec.decoding.sampling import Sampling
from hetspec.model.checkpoint import open_checkpoint
from hetspec.text.vocabulary import Vocabulary
from orchestrator.engine.request import GenerationRequest
from tests.equivalence.inprocess import Model, open_model
from tests.system import Ask, Setup, System

PROMPT = tuple(range(50, 70))
SAMPLINGS = {
    "repetition": Sampling(repetition_penalty=1.3),
    "frequency": Sampling(frequency_penalty=0.7),
    "presence": Sampling(presence_penalty=-0.9),
    "bias": Sampling(bias=((7, 4.0), (51, -100.0), (60, 2.5))),
    "all": Sampling(0.0, 0, 1.0, 0.0, 1.2, 0.4, 0.3, ((7, 3.0), (60, -5.0))),
}


@dataclass(frozen=True)
class Adjusted(Ask):
    sampling: Sampling = Sampling()
    min_tokens: int = 0
    ignore_eos: bool = False

    def request(self, deadline: float | None = None) -> GenerationRequest:
        sampling = replace(self.sampling, temperature=self.temperature)
        more = {"sampling": sampling, "min_tokens": self.min_tokens, "ignore_eos": self.ignore_eos}
        return replace(super().request(deadline), **more)


def reference_tokens(model: Model, ask: Adjusted, missing: np.ndarray, end_ids: tuple[int, ...]) -> list[int]:
    """Greedy, token by token, from logits of the whole text so far; adjusted in Python's floats, id by id."""
    s, output = ask.sampling, list[int]()
    while len(output) < ask.max_tokens:
        row = model.logits([*PROMPT, *output])[-1].astype(np.float64)
        for token in {*PROMPT, *output}:
            row[token] = row[token] / s.repetition_penalty if row[token] > 0 else row[token] * s.repetition_penalty
        for token in set(output):
            row[token] -= s.frequency_penalty * output.count(token) + s.presence_penalty
        for token, bias in s.bias:
            row[token] += bias
        row[missing] = -np.inf
        if len(output) < ask.min_tokens:
            row[list(end_ids)] = -np.inf
        output.append(int(row.argmax()))
        if output[-1] in end_ids:
            break
    return output


@pytest.mark.parametrize("name", SAMPLINGS)
async def test_greedy_tokens_are_those_of_a_plain_reference(name: str, tiny: Path, cache_dir: Path) -> None:
    checkpoint = open_checkpoint(tiny)
    with open_model(tiny, "int8", cache_dir, max_context=128) as model:
        missing = Vocabulary(checkpoint.text.tokenizer_json).missing(model.head.vocab_size)
        ask = Adjusted(PROMPT, "tree", 24, sampling=SAMPLINGS[name], min_tokens=5)
        expected = reference_tokens(model, ask, missing, tuple(checkpoint.text.end_ids))
        plain = reference_tokens(model, Adjusted(PROMPT, "tree", 24), missing, tuple(checkpoint.text.end_ids))
    async with System(Setup(tiny, cache_dir, draft=tiny)) as system:
        assert (await system.generate(ask)).tokens == expected
    assert expected != plain


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("draft", ["none", "target", "random"])
async def test_every_mode_emits_what_plain_emits(
    draft: str, temperature: float, tiny: Path, tiny_random_draft: Path, cache_dir: Path
) -> None:
    chosen = {"none": None, "target": tiny, "random": tiny_random_draft}[draft]

    def asks(mode: str) -> list[Ask]:
        return [
            Adjusted(PROMPT, mode, 24, temperature, seed, 8, 3, sampling=sampling, min_tokens=7)
            for sampling in SAMPLINGS.values()
            for seed in range(1 if temperature == 0 else 2)
        ]

    async with System(Setup(tiny, cache_dir, draft=chosen)) as system:
        plain = [answer.tokens for answer in await system.generate_all(asks("plain"))]
        for mode in ("chain", "tree"):
            assert [answer.tokens for answer in await system.generate_all(asks(mode))] == plain
    assert len({tuple(tokens) for tokens in plain}) > 1


async def test_a_draft_of_the_same_model_is_accepted_whole_under_penalties(tiny: Path, cache_dir: Path) -> None:
    """It adjusts its own logits as the sampler does, each branch by its own path: every node of a chain holds."""
    async with System(Setup(tiny, cache_dir, draft=tiny)) as system:
        for temperature in (0.0, 0.8):
            ask = Adjusted(PROMPT, "chain", 24, temperature, 1, 4, 4, sampling=SAMPLINGS["all"], ignore_eos=True)
            statistics = (await system.generate(ask)).statistics
            assert statistics.accepted == statistics.drafted > 0


async def test_end_tokens_are_withheld_until_min_tokens(tiny: Path, cache_dir: Path) -> None:
    """With the end tokens made the likeliest of all, they come first without min_tokens, and right behind with it."""
    end_ids = open_checkpoint(tiny).text.end_ids
    sampling = Sampling(bias=tuple((token, 100.0) for token in sorted(end_ids)))
    async with System(Setup(tiny, cache_dir, draft=tiny)) as system:
        for mode in ("plain", "chain", "tree", "lever", "ahasd", "full"):
            for least in (0, 1, 6):
                tokens = (await system.generate(Adjusted(PROMPT, mode, 16, sampling=sampling, min_tokens=least))).tokens
                assert [token in end_ids for token in tokens] == [False] * least + [True]


async def test_ignored_end_tokens_end_nothing(tiny: Path, cache_dir: Path) -> None:
    end_ids = open_checkpoint(tiny).text.end_ids
    sampling = Sampling(bias=tuple((token, 100.0) for token in sorted(end_ids)))
    async with System(Setup(tiny, cache_dir, draft=tiny)) as system:
        for mode in ("plain", "chain", "tree", "lever", "ahasd", "full"):
            answer = await system.generate(Adjusted(PROMPT, mode, 16, sampling=sampling, ignore_eos=True))
            assert len(answer.tokens) == 16
            assert set(answer.tokens) <= set(end_ids)
