"""hetspec.training.corpus.choosing, against numpy and scipy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import log_softmax, softmax

from hetspec.training.corpus.choosing import TOP, Choices

ROWS, VOCABULARY = 40, 100


@pytest.fixture
def logits():
    drawn = np.random.default_rng(0).normal(size=(ROWS, VOCABULARY)).astype(np.float32) * 3
    drawn[:, 7] = -np.inf
    return drawn


def test_best_tokens_and_their_probabilities_are_those_of_the_softmax(logits):
    found = Choices(logits.copy(), np.zeros(ROWS), np.zeros(ROWS))
    order = np.argsort(-logits, axis=1, kind="stable")[:, :TOP]
    assert np.array_equal(found.top_ids, order)
    wanted = np.take_along_axis(log_softmax(logits.astype(np.float64), axis=1), order, 1)
    np.testing.assert_allclose(found.top_logprobs, wanted, rtol=2e-3, atol=2e-3)
    assert np.array_equal(found.tokens, order[:, 0])


def test_equal_logits_come_by_id():
    found = Choices(np.zeros((1, VOCABULARY), np.float32), np.zeros(1), np.zeros(1))
    assert found.top_ids[0].tolist() == list(range(TOP))


def test_draws_are_those_of_the_cumulative_distribution(logits):
    rng = np.random.default_rng(1)
    temperatures, uniform = rng.choice([0.0, 0.5, 1.0], ROWS), rng.random(ROWS)
    found = Choices(logits.copy(), temperatures, uniform)
    for row in range(ROWS):
        if temperatures[row] == 0:
            assert found.tokens[row] == logits[row].argmax()
            continue
        reached = softmax(logits[row].astype(np.float64) / temperatures[row]).cumsum()
        token = found.tokens[row]
        below = reached[token - 1] if token else 0.0
        assert below - 1e-5 <= uniform[row] <= reached[token] + 1e-5


@pytest.mark.parametrize("uniform", [0.0, np.nextafter(1.0, 0.0)])
def test_forbidden_tokens_are_never_drawn(uniform):
    logits = np.full((1, VOCABULARY), -np.inf, np.float32)
    logits[0, [3, 50]] = 0.0
    assert Choices(logits, np.ones(1), np.array([uniform])).tokens[0] in (3, 50)
