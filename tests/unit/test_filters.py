import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hetspec.decoding.filters import best_first, keep
from hetspec.decoding.sampling import Sampling


def keep_reference(scores: list[float], sampling: Sampling) -> list[int] | None:
    """A full sort and plain loops; None where a boundary is closer than rounding can tell."""
    order = sorted((i for i, s in enumerate(scores) if s > -math.inf), key=lambda i: (-scores[i], i))
    if sampling.top_k:
        order = order[: sampling.top_k]
    if sampling.top_p < 1:
        total, mass, prefix = math.fsum(math.exp(scores[i]) for i in order), 0.0, []
        for i in order:
            prefix.append(i)
            mass += math.exp(scores[i]) / total
            if abs(mass - sampling.top_p) < 1e-6:
                return None
            if mass >= sampling.top_p:
                break
        order = prefix
    return sorted(i for i in order if sampling.min_p == 0 or scores[i] >= math.log(sampling.min_p))


# few distinct values make ties; -inf is a forbidden token
score_lists = st.lists(
    st.one_of(st.sampled_from([0.0, -0.5, -1.0, -70.0, -1e4, -math.inf]), st.floats(-100, 0)), min_size=1, max_size=80
).map(lambda scores: [*scores, 0.0])


@given(
    score_lists,
    st.integers(0, 90),
    st.one_of(st.just(1.0), st.floats(1e-6, 1, exclude_max=True)),
    st.one_of(st.just(0.0), st.floats(1e-6, 1)),
)
def test_filters_keep_what_a_full_sort_keeps(scores: list[float], top_k: int, top_p: float, min_p: float) -> None:
    sampling = Sampling(1.0, top_k, top_p, min_p)
    want = keep_reference(scores, sampling)
    assume(want is not None)
    kept = keep(np.array(scores), sampling)
    everything = [i for i, s in enumerate(scores) if s > -math.inf]
    assert (everything if kept is None else kept.tolist()) == want


@pytest.mark.parametrize("spread", [0.0, 0.01, 1.0, 5.0])
@pytest.mark.parametrize("top_p", [0.1, 0.9, 0.999])
def test_nucleus_of_a_whole_vocabulary_is_the_full_sorts(spread: float, top_p: float) -> None:
    scores = np.random.default_rng(3).normal(0, spread, 49_152)
    scores -= scores.max()
    want = keep_reference(scores.tolist(), Sampling(1.0, top_p=top_p))
    kept = keep(scores, Sampling(1.0, top_p=top_p))
    assert kept is not None
    if want is None:  # a boundary within rounding: one token more or less
        order = np.argsort(-scores, kind="stable")
        want = sorted(order[: len(kept)].tolist())
        assert np.exp(scores[kept]).sum() / np.exp(scores).sum() == pytest.approx(top_p, abs=1e-4)
    assert kept.tolist() == want


def test_ties_at_the_edge_of_top_k_go_to_the_lower_ids() -> None:
    kept = keep(np.array([-1.0, 0.0, -1.0, -1.0]), Sampling(1.0, top_k=3))
    assert kept is not None
    assert kept.tolist() == [0, 1, 2]


def test_ties_at_the_edge_of_top_p_go_to_the_lower_ids() -> None:
    kept = keep(np.zeros(10), Sampling(1.0, top_p=0.35))
    assert kept is not None
    assert kept.tolist() == [0, 1, 2, 3]


def test_top_p_counts_mass_after_top_k() -> None:
    # of all four, 0.25 reaches 0.2 with one token, and 0.45 takes two; among the best two each holds a half
    kept = keep(np.zeros(4), Sampling(1.0, top_k=2, top_p=0.45))
    assert kept is not None
    assert kept.tolist() == [0]


def test_no_filter_keeps_everything() -> None:
    assert keep(np.zeros(4), Sampling(1.0)) is None


@given(score_lists, st.integers(0, 90))
def test_best_first_is_the_head_of_a_full_sort(scores: list[float], count: int) -> None:
    want = sorted((i for i, s in enumerate(scores) if s > -math.inf), key=lambda i: (-scores[i], i))[:count]
    assert best_first(np.array(scores), count).tolist() == want
