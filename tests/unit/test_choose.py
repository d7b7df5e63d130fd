import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import special, stats

from hetspec.decoding.choose import choose, logprobs_of, perturbed
from hetspec.decoding.noise import gumbel
from hetspec.decoding.sampling import NoiseKey, Sampling

SEEDS = 20_000
LOGITS = np.array([2.0, -1.0, 0.5, 2.0, 1.0, -3.0, 0.0, 1.5], np.float32)


def exact_distribution(logits: NDArray[np.float32], sampling: Sampling) -> NDArray[np.float64]:
    """Softmax with temperature, top_k, top_p, min_p: sorts, loops and scipy."""
    p = special.softmax(logits.astype(np.float64) / sampling.temperature)
    order = sorted(range(len(p)), key=lambda i: (-p[i], i))[: sampling.top_k or len(p)]
    p = np.where(np.isin(np.arange(len(p)), order), p, 0) / p[order].sum()
    before = np.cumsum(p[order]) - p[order]
    order = [i for i, mass in zip(order, before, strict=True) if mass < sampling.top_p]
    order = [i for i in order if p[i] >= sampling.min_p * p.max()]
    return np.where(np.isin(np.arange(len(p)), order), p, 0) / p[order].sum()


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(1.0),
        Sampling(3.0),
        Sampling(1.0, top_p=0.8),
        Sampling(1.5, top_k=6, top_p=0.9, min_p=0.1),
    ],
)
def test_token_frequencies_over_seeds_match_the_exact_distribution(sampling: Sampling) -> None:
    exact = exact_distribution(LOGITS, sampling)
    counts = np.bincount([choose(LOGITS, sampling, NoiseKey(seed), 11) for seed in range(SEEDS)], minlength=len(LOGITS))
    assert not counts[exact == 0].any()
    possible = exact > 0
    assert stats.chisquare(counts[possible], SEEDS * exact[possible]).pvalue > 1e-3


def test_frequencies_over_positions_of_one_seed_match_too() -> None:
    counts = np.bincount([choose(LOGITS, Sampling(1.0), NoiseKey(5), i) for i in range(SEEDS)], minlength=len(LOGITS))
    assert stats.chisquare(counts, SEEDS * exact_distribution(LOGITS, Sampling(1.0))).pvalue > 1e-3


def test_choices_at_neighbouring_positions_are_independent() -> None:
    pairs = np.zeros((3, 3))
    for seed in range(SEEDS):
        first, second = (choose(LOGITS[:3], Sampling(1.0), NoiseKey(seed), position) for position in (0, 1))
        pairs[first, second] += 1
    assert stats.chi2_contingency(pairs).pvalue > 1e-3


logit_arrays = st.lists(
    st.one_of(st.sampled_from([1e4, -1e4, 0.0, 1.0]), st.floats(-1e4, 1e4, width=32)), min_size=1, max_size=200
).map(lambda values: np.array(values, np.float32))
samplings = st.builds(
    Sampling,
    st.one_of(st.sampled_from([0.0, 5e-324, 1e-300, 1e-6, 1.0]), st.floats(1e-3, 100)),
    st.integers(0, 20),
    st.one_of(st.just(1.0), st.floats(0.01, 1)),
    st.one_of(st.just(0.0), st.floats(0.01, 1)),
)


@given(logit_arrays, samplings, st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1))
def test_the_first_candidate_of_a_drafter_is_the_token_chosen(
    logits: NDArray[np.float32], sampling: Sampling, seed: int, position: int
) -> None:
    token = choose(logits, sampling, NoiseKey(seed), position)
    assert int(perturbed(logits, sampling, NoiseKey(seed), position, 3).ids[0]) == token


@given(logit_arrays, st.integers(0, 2**64 - 1), st.floats(0.01, 100))
def test_choose_is_argmax_of_log_p_plus_noise(logits: NDArray[np.float32], seed: int, temperature: float) -> None:
    key, ids = NoiseKey(seed), np.arange(len(logits))
    values = special.log_softmax(logits.astype(np.float64) / temperature) + gumbel(ids, key, 9)
    token = choose(logits, Sampling(temperature), key, 9)
    assert values[token] == pytest.approx(values.max(), rel=1e-12, abs=1e-9)


@given(logit_arrays)
def test_temperature_zero_is_the_first_argmax(logits: NDArray[np.float32]) -> None:
    assert choose(logits, Sampling(0), NoiseKey(1), 0) == int(np.flatnonzero(logits == logits.max())[0])


@given(logit_arrays, st.integers(0, 2**64 - 1))
def test_a_tiny_temperature_chooses_among_the_largest_only(logits: NDArray[np.float32], seed: int) -> None:
    token = choose(logits, Sampling(5e-324), NoiseKey(seed), 0)
    assert logits[token] == logits.max()


def test_candidates_carry_log_p_plus_noise_and_p() -> None:
    sampling, key = Sampling(0.7, top_k=5), NoiseKey(3)
    exact = exact_distribution(LOGITS, sampling)
    candidates = perturbed(LOGITS, sampling, key, 4, 8)
    assert len(candidates.ids) == 5
    want = np.log(exact[candidates.ids]) + gumbel(candidates.ids, key, 4)
    assert candidates.scores == pytest.approx(want, rel=1e-12)
    assert list(candidates.scores) == sorted(candidates.scores, reverse=True)
    assert candidates.probabilities == pytest.approx(exact[candidates.ids], rel=1e-12)


def test_candidates_at_temperature_zero_rank_by_probability() -> None:
    candidates = perturbed(LOGITS, Sampling(0), NoiseKey(3), 4, 4)
    assert candidates.ids.tolist() == [0, 3, 7, 4]
    assert candidates.probabilities == pytest.approx(special.softmax(LOGITS.astype(float))[[0, 3, 7, 4]], rel=1e-12)


def test_forbidden_tokens_are_never_chosen() -> None:
    logits = np.where(np.arange(200) % 3 == 1, LOGITS[0], -np.inf).astype(np.float32)
    for seed in range(200):
        for sampling in (Sampling(0), Sampling(2.0), Sampling(2.0, 150), Sampling(2.0, top_p=0.999)):
            assert choose(logits, sampling, NoiseKey(seed), 0) % 3 == 1


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_that_are_no_numbers_are_refused(bad: float, temperature: float) -> None:
    logits = LOGITS.copy()
    logits[6] = bad
    with pytest.raises(ValueError, match=r"logits\[6\]"):
        choose(logits, Sampling(temperature), NoiseKey(0), 0)


@given(logit_arrays, st.integers(0, 10))
def test_logprobs_are_log_softmax_of_the_raw_logits(logits: NDArray[np.float32], top: int) -> None:
    want = special.log_softmax(logits.astype(np.float64))
    got = logprobs_of(logits, len(logits) - 1, top)
    assert got.logprob == pytest.approx(want[-1], rel=1e-12, abs=1e-12)
    assert list(got.top_ids) == sorted(range(len(logits)), key=lambda i: (-logits[i], i))[:top]
    assert got.top_logprobs == pytest.approx(want[list(got.top_ids)], rel=1e-12, abs=1e-12)


def test_logprobs_give_forbidden_tokens_no_mass() -> None:
    logits = np.append(LOGITS, np.float32(-np.inf))
    got = logprobs_of(logits, 0, 20)
    assert got.top_ids == logprobs_of(LOGITS, 0, 20).top_ids
    assert math.fsum(math.exp(value) for value in got.top_logprobs) == pytest.approx(1, rel=1e-12)
