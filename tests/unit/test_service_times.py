"""Retry-After rests on this: judged by what then happens."""

from __future__ import annotations

import random

import pytest

from orchestrator.api.service_times import ServiceTimes


def test_estimate_is_the_mean_of_what_then_happens():
    """64 servers of exponential service times, refilled at once: 3,000 waits for the next three ends."""
    draw, mean_s, now = random.Random(1), 7.0, 0.0
    times, ends = ServiceTimes(), []
    for _ in range(64):
        times.begin(now)
        ends.append(now + draw.expovariate(1 / mean_s))
    ratios = []
    for step in range(3000):
        ends.sort()
        if step > 500:
            ratios.append((ends[2] - now, times.expected_s(3, now)))
        now = ends.pop(0)
        times.end(now)
        times.begin(now)
        ends.append(now + draw.expovariate(1 / mean_s))
    waited, estimated = (sum(column) for column in zip(*ratios, strict=True))
    assert estimated == pytest.approx(waited, rel=0.1)


def test_before_anything_has_ended_the_ages_of_those_that_run_are_the_estimate():
    times = ServiceTimes()
    times.begin(0.0)
    times.begin(0.0)
    assert times.expected_s(1, now=30.0) == 30.0


def test_without_anything_that_runs_there_is_nothing_to_wait_for():
    assert ServiceTimes().expected_s(5, now=1.0) == 0.0


def test_old_durations_are_forgotten():
    times = ServiceTimes()
    now = 0.0
    for duration in (*[1000.0] * 10, *[1.0] * 64):
        times.begin(now)
        now += duration
        times.end(now)
    times.begin(now)
    assert times.expected_s(1, now) == 1.0
