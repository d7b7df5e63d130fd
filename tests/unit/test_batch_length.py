"""The length of batches, against a simulation of the pipeline it is meant for."""

from __future__ import annotations

import random

import pytest

from hetspec.rpc.messages import DraftPolicy
from orchestrator.policies.batch_length import BatchLength

POLICY = DraftPolicy(16, 16, 1, (2,))


def taught(accept: float, outcome: float, length: int = 6, batches: int = 4000) -> BatchLength:
    """By batches whose tokens are accepted, and whose look-ahead hits, with these chances."""
    chance, learned = random.Random(1), BatchLength()
    for _ in range(batches):
        accepted = next((i for i in range(length) if chance.random() >= accept), length)
        learned.judged(length, accepted, accepted == length and chance.random() < outcome)
    return learned


def simulated(length: int, accept: float, outcome: float, step_ns: float, verify_ns: float) -> float:
    """Tokens a nanosecond of batches one after another, each drafted while the one before is verified."""
    chance, time, tokens, cycles = random.Random(2), 0.0, 0, 20_000
    for _ in range(cycles):
        accepted = next((i for i in range(length) if chance.random() >= accept), length)
        survives = accepted == length and chance.random() < outcome
        time += max(verify_ns, (1 + length) * step_ns) if survives else verify_ns + length * step_ns
        tokens += accepted + 1
    return tokens / time


@pytest.mark.parametrize("accept", [0.3, 0.7, 0.9])
@pytest.mark.parametrize(("step_ns", "verify_ns"), [(10, 20), (10, 100), (10, 1000)])
@pytest.mark.parametrize("length", [1, 3, 8])
def test_rate_is_that_of_a_simulation(accept: float, step_ns: int, verify_ns: int, length: int) -> None:
    told = taught(accept, 0.6).tokens_per_ns(length, step_ns, verify_ns)
    assert told == pytest.approx(simulated(length, accept, 0.6, step_ns, verify_ns), rel=0.05)


def test_best_length_is_the_one_of_the_highest_rate_and_grows_with_agreement() -> None:
    found = []
    for accept in (0.2, 0.6, 0.9):
        learned = taught(accept, 0.6)
        for _ in range(4):
            learned.drafted(2, 20)
            learned.verified(100)
        length = learned.policy(POLICY).max_depth
        rates = {n: learned.tokens_per_ns(n, 10, 100) for n in range(1, 17)}
        assert rates[length] == max(rates.values())
        found.append(length)
    assert found == sorted(found)
    assert found[0] < found[-1]


@pytest.mark.parametrize("accept", [0.3, 0.7, 0.9])
@pytest.mark.parametrize("unverified", [1, 3, 6])
def test_what_is_drafted_ahead_survives_as_often_as_all_before_it_is_right(accept: float, unverified: int) -> None:
    chance = random.Random(3)
    all_right = sum(all(chance.random() < accept for _ in range(unverified + 1)) for _ in range(20_000)) / 20_000
    assert taught(accept, 0.6).survival(unverified) == pytest.approx(all_right, abs=0.02)


def test_nothing_known_leaves_the_bounds() -> None:
    assert BatchLength().policy(POLICY) == POLICY


def test_bounds_are_kept() -> None:
    learned = taught(0.95, 0.9)
    learned.drafted(4, 4)
    learned.verified(10_000)
    for bound in (1, 2, 5):
        policy = learned.policy(DraftPolicy(bound, bound, 1, (2,)))
        assert policy.max_depth <= bound
        assert policy.max_nodes <= bound
