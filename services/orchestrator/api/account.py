"""One key's use of the server, and its limits."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from orchestrator.api.errors import ApiError, rate_limited
from orchestrator.api.service_times import ServiceTimes
from orchestrator.api.token_bucket import TokenBucket


@dataclass(frozen=True, slots=True)
class Limits:
    """None: no limit. running: requests at once, those that wait included. tokens: of prompts and answers."""

    running: int | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None


class Account:
    """name: what logs and metrics call it. tokens, answers: since the start; answers by status."""

    def __init__(self, name: str, limits: Limits, clock_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self.name = name
        self.limits = limits
        self.running = 0
        self.tokens = 0
        self.answers: Counter[int] = Counter()
        self._clock_ns = clock_ns
        self._times = ServiceTimes()
        self._requests = _bucket(limits.requests_per_minute, clock_ns)
        self._tokens = _bucket(limits.tokens_per_minute, clock_ns)

    @contextmanager
    def request(self) -> Iterator[None]:
        """A request, from arrival to end. Raises ApiError where a limit is reached; then it counts for none."""
        self._check()
        if self._requests is not None:
            self._requests.spend(1)
        self.running += 1
        self._times.begin(self._now_s)
        try:
            yield
        finally:
            self._times.end(self._now_s)
            self.running -= 1

    def spend(self, tokens: int) -> None:
        """A request that runs may overdraw the limit; the next one waits until the debt is paid."""
        self.tokens += tokens
        if self._tokens is not None:
            self._tokens.spend(tokens)

    def headers(self) -> dict[str, str]:
        """What is left, as OpenAI's x-ratelimit headers tell it; `reset` is when all is there again."""
        told = {}
        for what, bucket in (("requests", self._requests), ("tokens", self._tokens)):
            if bucket is not None:
                told[f"x-ratelimit-limit-{what}"] = str(bucket.per_minute)
                told[f"x-ratelimit-remaining-{what}"] = str(max(0, bucket.left))
                told[f"x-ratelimit-reset-{what}"] = _duration(bucket.wait_ns(bucket.per_minute))
        return told

    @property
    def _now_s(self) -> float:
        return self._clock_ns() * 1e-9

    def _check(self) -> None:
        if self.limits.running is not None and self.running >= self.limits.running:
            message = f"this key's limit of {self.limits.running} requests at once is reached"
            raise _exceeded(message, self._times.expected_s(1, self._now_s))
        for what, bucket in (("requests", self._requests), ("tokens", self._tokens)):
            if bucket is not None and bucket.left < 1:
                message = f"this key's limit of {bucket.per_minute} {what} a minute is reached"
                raise _exceeded(message, bucket.wait_ns(1) * 1e-9)


def _bucket(per_minute: int | None, clock_ns: Callable[[], int]) -> TokenBucket | None:
    return None if per_minute is None else TokenBucket(per_minute, clock_ns)


def _exceeded(message: str, wait_s: float) -> ApiError:
    return rate_limited(message, "rate_limit_exceeded", wait_s)


def _duration(ns: int) -> str:
    """As OpenAI writes it: 120ms, 8.64s, 1m0s."""
    ms = -(-ns // 10**6)
    if ms < 1000:
        return f"{ms}ms"
    minutes, rest_ms = divmod(ms, 60_000)
    return (f"{minutes}m" if minutes else "") + f"{rest_ms / 1000:g}s"
