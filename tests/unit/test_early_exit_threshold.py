"""A threshold keeps what it promises: against closed forms, brute force and many drawn samples."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from hetspec.training.early_exit.threshold import CONFIDENCE, Cut, allowed_losses, cut_of, threshold_of

chances = st.lists(st.floats(-20, 0), min_size=1, max_size=40)


@given(chances, st.integers(0, 45))
def test_the_threshold_is_the_highest_that_loses_no_more_than_allowed(scores: list[float], losses: int) -> None:
    found = threshold_of(np.array(scores), losses)
    sound = [score for score in scores if sum(other < score for other in scores) <= losses]
    assert found == (max(sound) if losses < len(scores) else None)


@given(chances, chances, st.integers(0, 5))
def test_a_cut_counts_as_one_by_one(right: list[float], wrong: list[float], losses: int) -> None:
    threshold = threshold_of(np.array(right), losses)
    scores, accepted = np.array(right + wrong), np.array([True] * len(right) + [False] * len(wrong))
    least = -math.inf if threshold is None else threshold
    lost, dropped = (sum(score < least for score in scores) for scores in (right, wrong))
    assert cut_of(scores, accepted, threshold) == Cut(len(right), lost, len(wrong), dropped)


@pytest.mark.parametrize("recall", [0.9, 0.995])
@pytest.mark.parametrize("accepted", [0, 1, 20, 459, 460, 1000, 5000])
def test_allowed_losses_are_clopper_and_pearsons(accepted: int, recall: float) -> None:
    losses = allowed_losses(accepted, recall)
    if losses >= 0:
        assert stats.binom.cdf(losses, accepted, 1 - recall) <= 1 - CONFIDENCE
    assert stats.binom.cdf(losses + 1, accepted, 1 - recall) > 1 - CONFIDENCE


def test_no_finite_sample_promises_a_recall_of_one() -> None:
    assert allowed_losses(10**6, 1.0) == -1
    assert threshold_of(np.zeros(10**3), -1) is None
    assert cut_of(np.array([-9.0, -1.0]), np.array([False, True]), None).pruned == 0


@pytest.mark.parametrize("recall", [0.95, 0.99])
def test_the_recall_holds_on_others_as_often_as_promised(recall: float) -> None:
    """Scores of no structure but their order, which is all that the rule looks at: uniform ones."""
    rng = np.random.default_rng(0)
    trials, size = 4000, 700
    drawn = rng.uniform(-1, 0, (trials, size))
    losses = allowed_losses(size, recall)
    thresholds = [threshold_of(scores, losses) for scores in drawn]
    kept = [-threshold for threshold in thresholds if threshold is not None]  # of a uniform score: its true recall
    assert np.mean(np.array(kept) >= recall) >= CONFIDENCE


def test_separable_scores_lose_nothing_and_drop_all_others() -> None:
    right, wrong = np.linspace(-1, 0, 1000), np.linspace(-9, -2, 500)
    scores, accepted = np.concatenate((right, wrong)), np.arange(1500) < 1000
    cut = cut_of(scores, accepted, threshold_of(right, 0))
    assert (cut.recall, cut.pruned) == (1.0, 1.0)


def test_scores_that_say_nothing_drop_no_more_of_the_others_than_of_the_accepted() -> None:
    rng = np.random.default_rng(1)
    right, wrong = rng.uniform(-1, 0, 20_000), rng.uniform(-1, 0, 20_000)
    threshold = threshold_of(right, allowed_losses(len(right), 0.995))
    cut = cut_of(np.concatenate((right, wrong)), np.arange(40_000) < 20_000, threshold)
    assert cut.pruned == pytest.approx(1 - cut.recall, abs=0.003)
