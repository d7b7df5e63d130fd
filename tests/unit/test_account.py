"""Limits of one key: what is said of waiting is exact, on a clock that the test turns."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.api.account import Account, Limits
from orchestrator.api.errors import ApiError
from orchestrator.api.token_bucket import TokenBucket

SECOND_NS = 10**9


class Clock:
    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        return self.now_ns


@given(st.integers(1, 10**6), st.lists(st.tuples(st.integers(0, 10**12), st.integers(1, 2000)), max_size=20))
def test_a_token_is_there_after_the_wait_and_not_a_nanosecond_before(per_minute, spendings):
    clock = Clock()
    bucket = TokenBucket(per_minute, clock)
    for pause_ns, tokens in spendings:
        clock.now_ns += pause_ns
        bucket.spend(tokens)
    wait_ns = bucket.wait_ns(1)
    if wait_ns:
        clock.now_ns += wait_ns - 1
        assert bucket.left < 1
        clock.now_ns += 1
    assert bucket.left >= 1


@given(st.integers(1, 1000), st.lists(st.tuples(st.integers(0, 10**10), st.integers(1, 50)), min_size=1, max_size=200))
def test_no_more_is_spent_than_was_full_flowed_in_and_one_overdraft(per_minute, attempts):
    clock = Clock()
    bucket = TokenBucket(per_minute, clock)
    spent = 0
    for pause_ns, tokens in attempts:
        clock.now_ns += pause_ns
        if bucket.left >= 1:
            bucket.spend(tokens)
            spent += tokens
    assert spent <= per_minute + clock.now_ns * per_minute / (60 * SECOND_NS) + 50


def test_time_without_requests_is_saved_up_for_one_minute_at_most():
    clock = Clock()
    bucket = TokenBucket(60, clock)
    bucket.spend(10)
    clock.now_ns += 3600 * SECOND_NS
    assert bucket.left == 60


def test_a_request_above_the_rate_is_refused_until_exactly_retry_after():
    clock = Clock()
    account = Account("a", Limits(requests_per_minute=6), clock)
    for _ in range(6):
        with account.request():
            pass
    clock.now_ns += 2 * SECOND_NS
    with pytest.raises(ApiError) as refused, account.request():
        pass
    assert (refused.value.status, refused.value.code) == (429, "rate_limit_exceeded")
    assert refused.value.headers == {"Retry-After": "8"}
    clock.now_ns += 8 * SECOND_NS - 1
    with pytest.raises(ApiError), account.request():
        pass
    clock.now_ns += 1
    with account.request():
        pass


def test_tokens_overdrawn_by_a_request_are_waited_off_by_the_next():
    clock = Clock()
    account = Account("a", Limits(tokens_per_minute=60), clock)
    with account.request():
        account.spend(100)
    with pytest.raises(ApiError) as refused, account.request():
        pass
    assert refused.value.headers == {"Retry-After": "41"}
    clock.now_ns += 41 * SECOND_NS
    with account.request():
        pass


def test_requests_at_once_are_bounded_and_given_back_however_they_end():
    account = Account("a", Limits(running=2))
    for _ in range(3):
        with ExitStack() as stack:
            stack.enter_context(account.request())
            stack.enter_context(account.request())
            with pytest.raises(ApiError) as refused, account.request():
                pass
            assert refused.value.status == 429
            with pytest.raises(KeyError), stack:
                raise KeyError
    assert account.running == 0


def test_headers_tell_limit_rest_and_when_all_is_there_again_as_openai_writes_it():
    clock = Clock()
    account = Account("a", Limits(requests_per_minute=60, tokens_per_minute=6000), clock)
    with account.request():
        account.spend(7000)
    assert account.headers() == {
        "x-ratelimit-limit-requests": "60",
        "x-ratelimit-remaining-requests": "59",
        "x-ratelimit-reset-requests": "1s",
        "x-ratelimit-limit-tokens": "6000",
        "x-ratelimit-remaining-tokens": "0",
        "x-ratelimit-reset-tokens": "1m10s",
    }
    clock.now_ns += 880 * 10**6
    assert account.headers()["x-ratelimit-reset-requests"] == "120ms"


def test_without_limits_nothing_is_told_and_all_is_let_in():
    account = Account("a", Limits())
    with account.request():
        account.spend(10**9)
    assert account.headers() == {}
