"""int8 stays close to float32: the same best token nearly everywhere, about the same perplexity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.equivalence.inprocess import open_model
from tests.prompts import chat_ids, prompts, spread
from weight_store.config import embedded_model

MIN_AGREEMENT = 0.95
MAX_PERPLEXITY_CHANGE = 0.03


@dataclass
class Scores:
    """At every position of some prompts: the best token, and the negative log-likelihood of the one that follows."""

    best: list[NDArray[np.intp]] = field(default_factory=list)
    surprise: list[NDArray[np.float64]] = field(default_factory=list)

    def add(self, ids: Sequence[int], logits: NDArray[np.float32]) -> None:
        self.best.append(logits.argmax(axis=1))
        shifted = logits[:-1] - logits[:-1].max(axis=1, keepdims=True)
        log_mass = np.log(np.exp(shifted).sum(axis=1, dtype=np.float64))
        self.surprise.append(log_mass - shifted[np.arange(len(ids) - 1), ids[1:]])

    @property
    def perplexity(self) -> float:
        return float(np.exp(np.concatenate(self.surprise).mean()))

    def agreement(self, other: Scores) -> float:
        return float((np.concatenate(self.best) == np.concatenate(other.best)).mean())


def scores_of(precision: str, texts: Sequence[str], cache_dir: Path) -> Scores:
    scores = Scores()
    with open_model(embedded_model(), precision, cache_dir) as model:
        for text in texts:
            ids = chat_ids(text)
            scores.add(ids, model.logits(ids))
    return scores


def check(texts: Sequence[str], cache_dir: Path) -> None:
    exact, found = (scores_of(precision, texts, cache_dir) for precision in ("float32", "int8"))
    agreement, change = found.agreement(exact), found.perplexity / exact.perplexity - 1
    positions = sum(map(len, exact.best))
    print(f"{positions} positions: agreement {agreement:.4f}, perplexity {exact.perplexity:.3f} {change:+.2%}")
    assert agreement >= MIN_AGREEMENT
    assert abs(change) <= MAX_PERPLEXITY_CHANGE


def test_int8_agrees_with_float32_on_a_few_prompts(cache_dir: Path) -> None:
    check(spread(8), cache_dir)


@pytest.mark.soak
def test_int8_agrees_with_float32_on_every_prompt(cache_dir: Path) -> None:
    check(prompts(), cache_dir)
