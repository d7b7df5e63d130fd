"""The decoding rule: the token at a position is argmax over v of (log p(v) + g(v)).

p is the target's distribution after temperature and filters, g the keyed noise of the position. Ties go to the lower
id. At temperature 0 the token is the argmax of the logits. A draft has no part in it: drafters apply the same rule to
their own logits, with the same noise, to propose what the target is likely to choose.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hetspec.decoding.filters import best_first, keep, take
from hetspec.decoding.noise import best_perturbed
from hetspec.decoding.sampling import NoiseKey, Sampling

Logits = NDArray[np.float32]  # [vocab]; -inf forbids a token
_FLOOR = -1e3  # exp of what lies below it is 0


@dataclass(frozen=True, slots=True)
class Candidates:
    """The tokens a model would choose first, best first.

    ids: [k]. scores: float64 [k], log p + g (log p at temperature 0). probabilities: float64 [k], p itself. entropy: of
    p, over all tokens, in nats.
    """

    ids: NDArray[np.intp]
    scores: NDArray[np.float64]
    probabilities: NDArray[np.float64]
    entropy: float


@dataclass(frozen=True, slots=True)
class Logprobs:
    """Natural logarithms of a token's probability and of the best ones', before temperature and filters."""

    logprob: float
    top_ids: tuple[int, ...] = ()
    top_logprobs: tuple[float, ...] = ()


def choose(logits: Logits, sampling: Sampling, noise: NoiseKey, position: int) -> int:
    """The token at absolute `position`. Raises ValueError where the logits hold NaN or +inf, or forbid every token."""
    if sampling.temperature == 0:
        return _argmax(logits)
    scores = _scores(logits, sampling.temperature)
    kept = keep(scores, sampling)
    best, _ = best_perturbed(take(scores, kept), kept, noise, position, count=1)
    return int(best[0])


def perturbed(
    logits: Logits, sampling: Sampling, noise: NoiseKey, position: int, count: int, ids: NDArray[np.intp] | None = None
) -> Candidates:
    """The `count` best tokens under the same filters and noise as `choose`: ids[0] is what it returns.

    ids: [n], ascending, the token of each logit, where they are of a part of the vocabulary.
    At temperature 0 there is no noise and no filter: log-probabilities of the plain softmax, which rank as logits do.
    """
    scores = _scores(logits, sampling.temperature or 1.0)
    if sampling.temperature == 0:
        best = best_first(logits, count)
        log_mass, entropy = _log_mass_and_entropy(scores)
        logs = scores[best] - log_mass
        return Candidates(best if ids is None else ids[best], logs, np.exp(logs), entropy)
    kept = keep(scores, sampling)
    log_mass, entropy = _log_mass_and_entropy(take(scores, kept))
    tokens = kept if ids is None else ids if kept is None else ids[kept]
    best, values = best_perturbed(take(scores, kept), tokens, noise, position, count)
    places = best if ids is None else np.searchsorted(ids, best)
    return Candidates(best, values - log_mass, np.exp(scores[places] - log_mass), entropy)


def logprobs_of(logits: Logits, token: int, top: int) -> Logprobs:
    """Of `token` and of the `top` best tokens. Forbidden tokens have no share of the mass."""
    scores = _scores(logits, 1.0)
    log_mass = _log_mass(scores)
    best = best_first(logits, top)
    return Logprobs(
        float(scores[token] - log_mass),
        tuple(int(i) for i in best),
        tuple(float(s) for s in scores[best] - log_mass),
    )


def _argmax(logits: Logits) -> int:
    best = int(np.argmax(logits))  # the first of equals; NaN, where there is one
    if not np.isfinite(logits[best]):
        raise ValueError(f"logits[{best}] = {logits[best]}, must be finite")
    return best


def _scores(logits: Logits, temperature: float) -> NDArray[np.float64]:
    """log p up to a constant, the largest 0: subtracting first keeps a tiny temperature from overflowing to +inf."""
    best = logits[_argmax(logits)]
    with np.errstate(over="ignore"):
        scores: NDArray[np.float64] = (logits.astype(np.float64) - np.float64(best)) / temperature
    return scores


def _log_mass(scores: NDArray[np.float64]) -> float:
    return math.log(float(np.exp(scores).sum()))


def _log_mass_and_entropy(scores: NDArray[np.float64]) -> tuple[float, float]:
    """The entropy, in nats, of shares in proportion to exp(scores): log Z - sum of exp(s) s / Z."""
    masses = np.exp(scores)
    total = float(masses.sum())
    weighted = float((masses * np.maximum(scores, _FLOOR)).sum())
    return math.log(total), math.log(total) - weighted / total
