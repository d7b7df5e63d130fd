"""At temperature 0.8 plain decoding draws from the exact distribution, and every other mode the same, seed by seed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from hetspec.decoding.choose import choose
from hetspec.decoding.sampling import NoiseKey, Sampling
from hetspec.model.checkpoint import open_checkpoint
from hetspec.text.vocabulary import Vocabulary
from tests.equivalence.inprocess import Model, open_model
from tests.system import Ask, Setup, System

TEMPERATURE = 0.8
SEEDS = 20_000
MIN_P_VALUE = 1e-4
MIN_EXPECTED = 5  # seeds in a cell of the chi-square test
PROMPT = tuple(range(50, 70))


def logits_after(model: Model, ids: Sequence[int], missing: NDArray[np.intp]) -> NDArray[np.float32]:
    row = model.logits(ids)[-1]
    row[missing] = -np.inf
    return row


def softmax(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    weights = np.exp((logits.astype(np.float64) - logits.max()) / TEMPERATURE)
    return weights / weights.sum()


def p_value(drawn: Sequence[int], probabilities: NDArray[np.float64]) -> float:
    """Of the chi-square test; rare tokens share a cell."""
    expected = probabilities * len(drawn)
    observed = np.bincount(drawn, minlength=len(probabilities))
    common = expected >= MIN_EXPECTED
    assert common.sum() >= 3
    cells = [*zip(observed[common], expected[common], strict=True)]
    if expected[~common].sum() > 0:
        cells.append((observed[~common].sum(), expected[~common].sum()))
    return float(stats.chisquare(*zip(*cells, strict=True)).pvalue)


@pytest.mark.parametrize("precision", ["int8", "float32"])
def test_plain_frequencies_are_those_of_the_softmax(precision: str, tiny: Path, cache_dir: Path) -> None:
    """Of the first token over all seeds; of the second over the seeds whose first is the commonest."""
    sampling = Sampling(TEMPERATURE)
    with open_model(tiny, precision, cache_dir, max_context=64) as model:
        missing = Vocabulary(open_checkpoint(tiny).text.tokenizer_json).missing(model.head.vocab_size)
        assert len(missing)
        first = logits_after(model, PROMPT, missing)
        drawn = [choose(first, sampling, NoiseKey(seed), len(PROMPT)) for seed in range(SEEDS)]
        assert p_value(drawn, softmax(first)) >= MIN_P_VALUE

        commonest, _ = Counter(drawn).most_common(1)[0]
        seeds = [seed for seed, token in enumerate(drawn) if token == commonest]
        second = logits_after(model, [*PROMPT, commonest], missing)
        drawn = [choose(second, sampling, NoiseKey(seed), len(PROMPT) + 1) for seed in seeds]
        assert p_value(drawn, softmax(second)) >= MIN_P_VALUE


async def check_seed_by_seed(seeds: int, setup: Setup) -> None:
    def asks(mode: str) -> list[Ask]:
        return [Ask(PROMPT, mode, 8, TEMPERATURE, seed, max_nodes=8, max_depth=3) for seed in range(seeds)]

    async with System(setup) as system:
        plain = [answer.tokens for answer in await system.generate_all(asks("plain"), at_once=32)]
        for mode in ("chain", "tree"):
            assert [answer.tokens for answer in await system.generate_all(asks(mode), at_once=32)] == plain
    assert len({tuple(tokens) for tokens in plain}) > seeds // 2  # seeds differ


DRAFTS = ("none", "target", "random")


@pytest.mark.parametrize("draft", DRAFTS)
async def test_every_mode_draws_what_plain_draws(
    draft: str, tiny: Path, tiny_random_draft: Path, cache_dir: Path
) -> None:
    chosen = {"none": None, "target": tiny, "random": tiny_random_draft}[draft]
    await check_seed_by_seed(50, Setup(tiny, cache_dir, draft=chosen))


@pytest.mark.soak
@pytest.mark.parametrize("precision", ["int8", "float32"])
@pytest.mark.parametrize("draft", DRAFTS)
async def test_every_mode_draws_what_plain_draws_on_2000_seeds(
    draft: str, precision: str, tiny: Path, tiny_random_draft: Path, cache_dir: Path
) -> None:
    chosen = {"none": None, "target": tiny, "random": tiny_random_draft}[draft]
    await check_seed_by_seed(2000, Setup(tiny, cache_dir, draft=chosen, precision=precision))
