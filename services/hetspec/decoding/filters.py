"""top_k, top_p and min_p, in this order, without sorting the vocabulary.

Scores are logarithms of probabilities up to a constant, after temperature, shifted so that the largest is 0. -inf marks
a token that cannot be chosen. Among equal scores the lower id goes first, so every filter keeps a well-defined set.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from hetspec.decoding.sampling import Sampling
from hetspec.jit import part

Scores = NDArray[np.float64]  # [n]
Indices = NDArray[np.intp]  # [m] into scores

_BINS_PER_NAT = 64
_BINS = 4096  # the last one takes everything below e**-64


def keep(scores: Scores, sampling: Sampling) -> Indices | None:
    """Ids that pass, ascending, the best one always among them; None where no filter is on.

    top_k: the k best. top_p: of what is left, renormalised, the shortest prefix in descending order whose mass reaches
    top_p. min_p: of what is left, probabilities of at least min_p times the largest.
    """
    kept: Indices | None = None
    if 0 < sampling.top_k < len(scores):
        kept = _best(scores, sampling.top_k)
    if sampling.top_p < 1:
        kept = _among(kept, _nucleus(take(scores, kept), sampling.top_p))
    if sampling.min_p > 0:
        kept = _among(kept, np.flatnonzero(take(scores, kept) >= math.log(sampling.min_p)))
    return kept


def take(scores: Scores, kept: Indices | None) -> Scores:
    return scores if kept is None else scores[kept]


def best_first(scores: Scores | NDArray[np.float32], count: int) -> Indices:
    """The `count` best ids in descending order of score (or logit), ties to the lower id; none at -inf."""
    chosen = _best(scores, count) if count < len(scores) else np.arange(len(scores))
    return _descending(scores, chosen[scores[chosen] > -np.inf])


def _among(kept: Indices | None, passed: Indices) -> Indices:
    return passed if kept is None else kept[passed]


def _best(scores: Scores | NDArray[np.float32], count: int) -> Indices:
    """Ascending indices of the `count` best; count < len(scores)."""
    if count == 0:
        return np.zeros(0, np.intp)
    bar = np.partition(scores, -count)[-count]
    above = np.flatnonzero(scores > bar)
    if bar == -np.inf:
        return above
    level = np.flatnonzero(scores == bar)[: count - len(above)]
    return np.sort(np.concatenate((above, level)))


def _nucleus(scores: Scores, top_p: float) -> Indices:
    """Ascending indices of the shortest descending prefix that holds `top_p` of the mass.

    Mass is added up by narrow bins of score, each in id order; only the bin in which the prefix ends is sorted.
    Weights are float32, good to 2e-7 of each; sums are float64.
    """
    with np.errstate(over="ignore"):
        weights = scores.astype(np.float32)
    np.exp(weights, out=weights)
    masses = np.cumsum(_bin_masses(scores, weights))
    needed = top_p * masses[-1]
    edge = int(np.searchsorted(masses, needed))
    upper, lower = -edge / _BINS_PER_NAT, -(edge + 1) / _BINS_PER_NAT if edge < _BINS - 1 else -np.inf
    inside = np.flatnonzero(scores > upper)
    order = _descending(scores, np.flatnonzero((scores <= upper) & (scores > lower)))
    mass = (masses[edge - 1] if edge else 0.0) + np.cumsum(weights[order], dtype=np.float64)
    last = int(np.searchsorted(mass, needed))
    return np.sort(np.concatenate((inside, order[: last + 1])))


@part
def _bin_masses(scores, weights):  # type: ignore[no-untyped-def]
    """Sum of weights by bin: bin b holds the scores in (-(b + 1) / bins per nat, -b / bins per nat]."""
    masses = np.zeros(_BINS, np.float64)
    for i in range(scores.shape[0]):
        masses[int(min(-scores[i] * _BINS_PER_NAT, _BINS - 1.0))] += weights[i]
    return masses


def _descending(scores: Scores | NDArray[np.float32], indices: Indices) -> Indices:
    """Ascending indices, reordered by falling score; a stable sort leaves ties in id order."""
    return indices[np.argsort(-scores[indices], kind="stable")]
