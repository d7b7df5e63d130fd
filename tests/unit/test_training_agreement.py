"""hetspec.training.evaluation.agreement, against definitions spelled out row by row."""

from __future__ import annotations

import numpy as np
import pytest

from hetspec.training.evaluation.agreement import TOPS, AgreementCount, softmax

ROWS, VOCABULARY = 60, 30


@pytest.mark.parametrize("head_ids", [None, np.array([0, 2, 3, 5, 7, 11, 13, 17, 19, 23, 29])])
def test_counts_are_those_of_the_definitions(head_ids):
    rng = np.random.default_rng(0)
    ids = np.arange(VOCABULARY) if head_ids is None else head_ids
    logits = rng.normal(size=(ROWS, len(ids))).astype(np.float32) * 3
    target = softmax(rng.normal(size=(ROWS, VOCABULARY)).astype(np.float32) * 3)
    count = AgreementCount()
    for part in (slice(0, 25), slice(25, ROWS)):
        count.add(logits[part], head_ids, target[part])
    found = count.result()

    drafted = np.zeros((ROWS, VOCABULARY))
    drafted[:, ids] = softmax(logits)
    best = [sorted(ids.tolist(), key=lambda token: -row[token]) for row in drafted]
    wanted = target.argmax(axis=1)
    assert found.guesses == ROWS
    for k in TOPS:
        assert found.top[k] == pytest.approx(np.mean([w in row[:k] for w, row in zip(wanted, best, strict=True)]))
    total_variation = 0.5 * np.abs(drafted - target).sum(axis=1)
    assert found.overlap == pytest.approx(1 - total_variation.mean())
    assert sum(one.guesses for one in found.reliability) == ROWS


def test_calibration_error_is_the_distance_between_confidence_and_truth():
    """Two bins: nine guesses of 0.9, all wrong but two; one of 0.5, right."""
    logits = np.log(np.array([[0.9, 0.1]] * 9 + [[0.55, 0.45]])).astype(np.float32)
    target = np.eye(2)[[0, 0, *[1] * 7, 0]]
    count = AgreementCount()
    count.add(logits, None, target)
    found = count.result()
    assert [one.guesses for one in found.reliability] == [1, 9]
    assert found.reliability[1].right == pytest.approx(2 / 9)
    assert found.calibration_error == pytest.approx(0.9 * (0.9 - 2 / 9) + 0.1 * (1 - 0.55))


def test_equal_logits_rank_by_id():
    count = AgreementCount()
    count.add(np.zeros((2, 6), np.float32), None, np.eye(6)[[0, 5]])
    assert count.result().top == {1: 0.5, 4: 0.5, 8: 1.0}
