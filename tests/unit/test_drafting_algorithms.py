"""Each algorithm against its paper's formula, stated anew over the whole history."""

from __future__ import annotations

import math
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetspec.drafting.stop_rule import StopKind, StopRule
from hetspec.rpc.messages import DraftPolicy
from orchestrator.policies.bandits import LENGTHS, Exp3Spec, UcbSpec
from orchestrator.policies.drafting_algorithm import Drafting, DraftingAlgorithm, drafting_algorithm

BASE = DraftPolicy(16, 16, width=1, sources=(1, 2))
K = len(LENGTHS)
entropies = st.floats(0, 20)
chances = st.floats(0, 1)
rounds = st.lists(st.tuples(st.integers(0, 16), st.integers(1, 10**9)), min_size=1, max_size=80)  # accepted, ns


def stop_of(name: Drafting) -> StopRule:
    stop = drafting_algorithm(name, 0).policy(BASE).stop
    assert stop is not None
    return stop


@given(entropies)
def test_svip_ends_with_a_token_whose_root_entropy_exceeds_its_threshold(entropy: float) -> None:
    stop = stop_of(Drafting.SVIP)
    if abs(0.15 * entropy - 0.09) > 1e-12:
        assert stop.ends_after(entropy) == (math.sqrt(0.15 * entropy) > 0.3)  # as its authors' code has it
    assert not stop.ends_before(entropy, [0.0])


@given(entropies)
def test_adaedl_ends_before_a_token_whose_bound_on_acceptance_is_too_low(entropy: float) -> None:
    stop = stop_of(Drafting.ADAEDL)
    assert stop.ends_before(entropy, []) == (1 - math.sqrt(0.2 * entropy) < stop.threshold)
    assert not stop.ends_after(entropy)


@given(st.lists(chances, max_size=8), chances)
def test_specdecpp_ends_where_the_chance_of_a_rejection_exceeds_its_threshold(of_tokens: list[float], h: float) -> None:
    stop = replace(stop_of(Drafting.SPECDECPP), threshold=h)
    none_rejected = 1.0
    for chance in of_tokens:
        none_rejected *= chance
    assert stop.ends_before(3.0, of_tokens) == (1 - none_rejected > h)
    assert not stop.ends_after(20.0)


@given(rounds, st.integers(1, 16))
def test_adaedl_threshold_follows_the_acceptance_rate(happened: list[tuple[int, int]], length: int) -> None:
    algorithm, base = drafting_algorithm(Drafting.ADAEDL, 0), replace(BASE, max_depth=length)
    rate, threshold = 0.9, stop_of(Drafting.ADAEDL).threshold
    for accepted, duration_ns in happened:
        accepted, policy = min(accepted, length), algorithm.policy(base)
        algorithm.learn(policy, length, accepted, duration_ns)
        rate = 0.5 * rate + 0.5 * accepted / length
        aim = threshold + 0.01 if rate < 0.9 else threshold - 0.01 if accepted != length else threshold
        threshold = min(1, 0.9 * threshold + 0.1 * aim)
        stop = algorithm.policy(base).stop
        assert stop is not None
        assert stop.kind is StopKind.ACCEPTANCE_BOUND
        assert stop.threshold == pytest.approx(threshold, abs=1e-12)


def throughputs(happened: list[tuple[int, int, int]]) -> list[tuple[int, float]]:
    """Of each round its arm and its reward, of those known by the end."""
    rates = [(arm, (accepted + 1) / ns) for arm, accepted, ns in happened]
    best = max(rate for _, rate in rates)
    return [(arm, rate / best) for arm, rate in rates]


def ucb_choices(happened: list[tuple[int, int, int]]) -> list[float]:
    """The index of each arm (equations 5 to 7), where all were tried."""
    rewards, t = throughputs(happened), len(happened)
    indices = []
    for arm in range(K):
        own = [reward for which, reward in rewards if which == arm]
        n = len(own)
        radius = 0.5 * math.sqrt((1 + n) / n**2 * (1 + 2 * math.log(K * t**2 * (1 + n) ** 0.5)))
        indices.append(sum(own) / n + radius)
    return indices


@given(rounds)
def test_ucb_tries_every_length_once_then_takes_the_largest_upper_confidence_bound(
    outcomes: list[tuple[int, int]],
) -> None:
    algorithm, happened = UcbSpec(), list[tuple[int, int, int]]()
    for t, (accepted, ns) in enumerate(outcomes):
        policy = algorithm.policy(BASE)
        arm = LENGTHS.index(policy.max_depth)
        if t < K:
            assert arm == t
        else:
            indices = ucb_choices(happened)
            assert indices[arm] == pytest.approx(max(indices), rel=1e-9)
        happened.append((arm, accepted, ns))
        algorithm.learn(policy, policy.max_depth, accepted, ns)


@given(rounds, st.integers(0, 2**64 - 1))
def test_exp3_draws_a_length_by_the_exponential_weights_of_estimated_losses(
    outcomes: list[tuple[int, int]], seed: int
) -> None:
    algorithm, drawn, losses, best = Exp3Spec(seed), Random(seed), [0.0] * K, 0.0
    for t, (accepted, ns) in enumerate(outcomes, 1):
        eta = math.sqrt(math.log(K) / (t * K))
        weights = [math.exp(-eta * (loss - min(losses))) for loss in losses]
        p = [weight / sum(weights) for weight in weights]
        policy = algorithm.policy(BASE)
        arm = LENGTHS.index(policy.max_depth)
        point = drawn.random()
        assert sum(p[:arm]) - 1e-9 <= point <= sum(p[: arm + 1]) + 1e-9
        algorithm.learn(policy, policy.max_depth, accepted, ns)
        best = max(best, (accepted + 1) / ns)
        losses[arm] += (1 - (accepted + 1) / ns / best) / p[arm]


def played(algorithm: DraftingAlgorithm, acceptance: float, step_ns: int, pass_ns: int, count: int) -> list[int]:
    """The lengths it chose where each token is accepted with that chance, a step and a pass take as long as told."""
    random, chosen = Random(7), []
    for _ in range(count):
        policy = algorithm.policy(BASE)
        accepted = 0
        while accepted < policy.max_depth and random.random() < acceptance:
            accepted += 1
        algorithm.learn(policy, policy.max_depth, accepted, pass_ns + policy.max_depth * step_ns)
        chosen.append(policy.max_depth)
    return chosen


def best_length(acceptance: float, step_ns: int, pass_ns: int) -> int:
    """The most expected tokens for the time (Leviathan et al., arXiv 2211.17192)."""

    def rate(length: int) -> float:
        tokens = sum(acceptance**i for i in range(length + 1))
        return tokens / (pass_ns + length * step_ns)

    return max(LENGTHS, key=rate)


@pytest.mark.parametrize("name", [Drafting.BANDITSPEC_UCB, Drafting.BANDITSPEC_EXP3])
@pytest.mark.parametrize(("acceptance", "step_ns"), [(0.95, 1), (0.1, 100)])
def test_bandits_come_to_play_the_best_length_most(name: Drafting, acceptance: float, step_ns: int) -> None:
    chosen = played(drafting_algorithm(name, 5), acceptance, step_ns, 100, 6000)[-1500:]
    best = best_length(acceptance, step_ns, 100)
    assert best == (8 if acceptance > 0.5 else 1)
    assert max(LENGTHS, key=chosen.count) == best
    assert chosen.count(best) > 0.5 * len(chosen)


@pytest.mark.parametrize("name", Drafting)
@given(happened=rounds, depth=st.integers(1, 40))
def test_bounds_are_kept_and_choices_depend_on_seed_and_outcomes_alone(
    name: Drafting, happened: list[tuple[int, int]], depth: int
) -> None:
    base = DraftPolicy(depth, depth, width=1, sources=(1,), min_gain=0.25)
    first, second = drafting_algorithm(name, 3), drafting_algorithm(name, 3)
    for accepted, duration_ns in happened:
        policy = first.policy(base)
        assert policy == second.policy(base)
        assert 1 <= policy.max_depth <= depth
        assert (policy.max_nodes, policy.width, policy.sources, policy.min_gain) == (policy.max_depth, 1, (1,), 0.25)
        for one in (first, second):
            one.learn(policy, policy.max_depth, min(accepted, policy.max_depth), duration_ns)


def test_fixed_leaves_the_bounds_as_they_are() -> None:
    assert drafting_algorithm(Drafting.FIXED, 1).policy(BASE) == BASE


@pytest.mark.parametrize(
    ("kind", "threshold"),
    [(StopKind.ROOT_ENTROPY, -0.1), (StopKind.ROOT_ENTROPY, math.nan), (StopKind.ACCEPTANCE_BOUND, 1.1),
     (StopKind.REJECTION, -0.1), (StopKind.REJECTION, 1.5)],
)  # fmt: skip
def test_a_threshold_out_of_bounds_is_refused(kind: StopKind, threshold: float) -> None:
    with pytest.raises(ValueError, match=r"policy.stop.threshold = .*, must be in \["):
        StopRule(kind, threshold)
