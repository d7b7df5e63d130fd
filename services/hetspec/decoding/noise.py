"""Keyed Gumbel noise: one number for each (seed, prompt, choice, position, token), whoever asks and in what order.

The generator is Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011). The mapping:

    key     = (seed mod 2**32, seed div 2**32)
    counter = (token, position, prompt_index, choice_index)
    x       = philox4x32_10(counter, key)            four 32-bit words, the last two unused
    w       = x[0] + 2**32 * x[1]
    u       = (floor(w / 2**12) + 1/2) / 2**52       float64, exact, in [2**-53, 1 - 2**-53]
    g       = -ln(-ln(u))                            float64
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from hetspec.decoding.sampling import NoiseKey
from hetspec.decoding.tree import TokenTree
from hetspec.jit import part

NOISE_MAX = -math.log(-math.log(1 - 2.0**-53))
"""No noise is larger: 36.74."""

_ROUNDS = 10
_CHUNK = 64

_MUL_0, _MUL_1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_WEYL_0, _WEYL_1 = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
_LOW = np.uint64(0xFFFFFFFF)
_32, _12 = np.uint64(32), np.uint64(12)


@part
def _philox(c0, c1, c2, c3, k0, k1):  # type: ignore[no-untyped-def]
    """Four words out of counter and key, each a uint64 below 2**32, so that the multiply keeps its high half."""
    for _ in range(_ROUNDS):
        p0 = _MUL_0 * c0
        p1 = _MUL_1 * c2
        c0, c1, c2, c3 = (p1 >> _32) ^ c1 ^ k0, p1 & _LOW, (p0 >> _32) ^ c3 ^ k1, p0 & _LOW
        k0 = (k0 + _WEYL_0) & _LOW
        k1 = (k1 + _WEYL_1) & _LOW
    return c0, c1, c2, c3


@part
def _uniforms(ids, stream, out):  # type: ignore[no-untyped-def]
    """out[i] = u of token ids[i]. No branch in the loop: it compiles to vector instructions."""
    k0, k1, position, prompt, choice = stream[0], stream[1], stream[2], stream[3], stream[4]
    for i in range(ids.shape[0]):
        x0, x1, _, _ = _philox(np.uint64(ids[i]), position, prompt, choice, k0, k1)
        out[i] = (np.float64((x0 | (x1 << _32)) >> _12) + 0.5) * 2.0**-52


@part
def keep_best(value, token, best_scores, best_ids):  # type: ignore[no-untyped-def]
    """Insert into the descending list, behind equals: tokens arrive in ascending order, so ties go to the lower id."""
    place = best_scores.shape[0] - 1
    if not value > best_scores[place]:
        return
    while place > 0 and value > best_scores[place - 1]:
        best_scores[place] = best_scores[place - 1]
        best_ids[place] = best_ids[place - 1]
        place -= 1
    best_scores[place] = value
    best_ids[place] = token


@part
def race(scores, ids, stream, best_scores, best_ids):  # type: ignore[no-untyped-def]
    """Fill the best of score + noise. Noise that cannot win is not computed, and the result does not depend on it:

    a token of score s enters only if g > bar - s, bar being the worst of the list so far. As g < -ln(1 - u), that needs
    1 - u < exp(s - bar). `least` states this for the chunk's largest score, with a margin for rounding.
    """
    uniforms = np.empty(_CHUNK, np.float64)
    for start in range(0, ids.shape[0], _CHUNK):
        stop = min(start + _CHUNK, ids.shape[0])
        top = -np.inf
        for i in range(start, stop):
            top = max(top, scores[i])
        bar = best_scores[-1]
        if top + NOISE_MAX < bar:
            continue
        _uniforms(ids[start:stop], stream, uniforms)
        least = 1.0 - math.exp(top - bar) * (1.0 + 1e-9)
        for i in range(start, stop):
            u = uniforms[i - start]
            if u >= least:
                keep_best(scores[i] - math.log(-math.log(u)), ids[i], best_scores, best_ids)


def stream_of(key: NoiseKey, position: int) -> NDArray[np.uint64]:
    if not 0 <= position < 2**32:
        raise ValueError(f"position = {position}, must be in [0, 2**32)")
    words = (key.seed % 2**32, key.seed // 2**32, position, key.prompt_index, key.choice_index)
    return np.array(words, dtype=np.uint64)


def gumbel(ids: NDArray[np.intp], key: NoiseKey, position: int) -> NDArray[np.float64]:
    """The noise of these tokens at this position. [n] -> [n]"""
    uniforms = np.empty(len(ids), np.float64)
    _uniforms(ids, stream_of(key, position), uniforms)
    noise: NDArray[np.float64] = -np.log(-np.log(uniforms))
    return noise


def tree_noise(tree: TokenTree, temperature: float, key: NoiseKey, position: int) -> NDArray[np.float64]:
    """By how much each node's token is ahead where it stands: temperature * noise, which weighs as a logit. [nodes]

    position: of the first level.
    """
    ahead, tokens, levels = np.zeros(len(tree)), np.array(tree.tokens, np.intp), np.array(tree.depths())
    if temperature:
        for level in np.unique(levels):
            ahead[levels == level] = gumbel(tokens[levels == level], key, position + int(level) - 1)
    return ahead * temperature


def best_perturbed(
    scores: NDArray[np.float64], ids: NDArray[np.intp] | None, key: NoiseKey, position: int, count: int
) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """The `count` tokens of largest score + noise, best first, ties to the lower id; fewer where fewer are finite.

    scores: [n], -inf for a token that must not win. ids: [n], ascending; None: 0 to n - 1.
    Returns ids and score + noise.
    """
    if ids is None:
        ids = np.arange(len(scores))
    best_scores = np.full(count, -np.inf)
    best_ids = np.zeros(count, np.intp)
    race(scores, ids, stream_of(key, position), best_scores, best_ids)
    found = int(np.count_nonzero(best_scores > -np.inf))
    return best_ids[:found], best_scores[:found]
