"""Pre-verification control against exact arithmetic on the last four of each kind; its fit against the closed form."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import nnls

from orchestrator.policies.latency import FittedLatency
from orchestrator.policies.tvc import MOST_TOKENS, Tvc

durations = st.integers(1, 10**9)
sizes = st.integers(1, 4096)
seen = st.lists(st.tuples(durations, sizes), max_size=9)
asked = st.tuples(sizes, st.integers(0, 10**9), st.integers(1, 32))


def mean_of_last_four(tasks: list[tuple[int, int]]) -> Fraction:
    ratios = [Fraction(duration, size) for duration, size in tasks[-4:]]
    return sum(ratios, Fraction(0)) / len(ratios)


@given(seen, seen, seen, asked)
def test_length_is_the_time_left_by_the_last_four_ratios(
    verified: list[tuple[int, int]], drafted: list[tuple[int, int]], checked: list[tuple[int, int]],
    question: tuple[int, int, int],
) -> None:  # fmt: skip
    tvc, (kv_len, spent_ns, next_tokens) = Tvc(), question
    for tell, tasks in ((tvc.verified, verified), (tvc.drafted, drafted), (tvc.pre_verified, checked)):
        for duration, size in tasks:
            tell(duration, size)
    length = tvc.pre_verify_tokens(kv_len, spent_ns, next_tokens)
    if not verified or not drafted:
        assert length == 0
        return
    left = mean_of_last_four(verified) * kv_len - (spent_ns + mean_of_last_four(drafted) * next_tokens)
    slack = 2 + abs(left) / 10**9  # whole nanoseconds, and floats
    if not checked:
        if abs(left - mean_of_last_four(drafted)) > slack:
            assert length == (left > mean_of_last_four(drafted))
        return
    each = mean_of_last_four(checked)
    assert length >= 0
    assert length == 0 or length * each <= left + slack
    assert length == MOST_TOKENS or (length + 1) * each > left - slack


@given(st.lists(st.tuples(durations, sizes), min_size=2, max_size=9))
def test_error_is_the_mean_of_what_was_foretold_before_each_task(tasks: list[tuple[int, int]]) -> None:
    tvc, errors = Tvc(), []
    for i, (duration, size) in enumerate(tasks):
        if i:
            errors.append(abs(float(mean_of_last_four(tasks[:i]) * size) - duration) / duration)
        tvc.drafted(duration, size)
    told = tvc.report().drafting
    assert told.tasks == len(errors)
    assert told.tables == pytest.approx(sum(errors) / len(errors), abs=1.0, rel=1e-9)  # whole nanoseconds


@given(st.lists(st.tuples(durations, st.integers(1, 128), sizes), min_size=1, max_size=30))
def test_fit_is_the_non_negative_ridge_regression_of_weighted_tasks(tasks: list[tuple[int, int, int]]) -> None:
    fit, (tokens, kv_len) = FittedLatency(), (17, 500)
    for duration, *size in tasks:
        fit.learn(duration, *size)
    x = np.array([[1, tokens / 16, kv / 1024] for _, tokens, kv in tasks])
    y = np.array([duration / 1e6 for duration, *_ in tasks])
    shares = np.sqrt(0.98 ** np.arange(len(tasks))[::-1])
    rows, times = np.vstack([x * shares[:, None], 1e-3 * np.eye(3)]), np.append(y * shares, [0, 0, 0])
    expected = nnls(rows, times)[0] @ [1, tokens / 16, kv_len / 1024] * 1e6
    assert fit.estimate_ns(tokens, kv_len) == pytest.approx(expected, rel=1e-3, abs=1 + y.max() * 1e3)


def task_ns(tokens: int, kv_len: int) -> int:
    return 2_000_000 + 30_000 * tokens + 700 * kv_len


def test_fit_knows_a_fixed_cost_that_ratios_do_not() -> None:
    tables, fitted = Tvc(), Tvc(fitted=True)
    for tvc in (tables, fitted):
        for i in range(60):
            kv_len, rows = 300 + 9 * i, 1 + 7 * i % 24
            tvc.verified(task_ns(rows, kv_len), kv_len, rows)
            tvc.drafted(task_ns(1 + i % 5, kv_len), 1 + i % 5, kv_len)
            tvc.pre_verified(task_ns(1 + i % 3, kv_len), 1 + i % 3, kv_len)
        for errors in (tvc.report().verification, tvc.report().drafting, tvc.report().pre_verification):
            assert errors.fitted < errors.tables
    left = task_ns(24, 900) - 100_000 - task_ns(1, 900)  # less than any check takes
    assert left < task_ns(1, 900)
    assert fitted.pre_verify_tokens(900, 100_000, 1, rows=24) == 0


def test_fit_fills_the_time_left_to_the_token() -> None:
    tvc = Tvc(fitted=True)
    for i in range(80):
        kv_len = 100 + 37 * i % 800
        tvc.verified(10 * task_ns(1 + i % 9, kv_len), kv_len, 1 + i % 9)
        tvc.drafted(task_ns(1 + i % 5, kv_len), 1 + i % 5, kv_len)
        tvc.pre_verified(task_ns(1 + i % 11, kv_len), 1 + i % 11, kv_len)
    left = 10 * task_ns(5, 400) - task_ns(4, 400) - task_ns(20, 400) - 15_000  # room for 20 tokens and a half
    assert tvc.pre_verify_tokens(400, left, 4, rows=5) == 20


@pytest.mark.parametrize("duration_ns", [0, -5])
def test_a_task_that_took_no_time_is_refused(duration_ns: int) -> None:
    with pytest.raises(ValueError, match=f"duration_ns = {duration_ns}, must be positive"):
        Tvc().drafted(duration_ns, 3)


@pytest.mark.parametrize("fitted", [False, True])
def test_first_check_comes_though_all_drafts_were_of_one_length(fitted: bool) -> None:
    tvc = Tvc(fitted)
    for _ in range(5):
        tvc.verified(265, 128, 6)
        tvc.drafted(140, 5)
    assert tvc.pre_verify_tokens(128, 0, 5, 6) == 1  # 125 are left, a drafted token takes 28
    assert tvc.pre_verify_tokens(128, 100, 5, 6) == 0
