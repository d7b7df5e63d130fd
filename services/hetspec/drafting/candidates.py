"""What a draft model proposes behind each of several rows of logits, in one native pass over them.

Without temperature the likeliest tokens, each with its probability. With it, those that the keyed noise favours
(`hetspec.decoding.choose`): the target draws with the same noise, and differs only as far as its log-probabilities do.
The entropy is that of the distribution itself.

A token's chance is its share of exp(log q + T g), with q the draft's probability at temperature 1, T the temperature
and g the noise: were each of the draft's log q off from the target's by independent Gumbel noise, this is the chance
that the token is the one that the target chooses, as argmax(log p + T g), whatever T is. With T its share is taken
among the best few alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hetspec.decoding.adjust import Adjuster
from hetspec.decoding.choose import perturbed
from hetspec.decoding.constraint import DeadEnd
from hetspec.decoding.noise import keep_best, race, stream_of
from hetspec.decoding.sampling import NoiseKey, Sampling
from hetspec.drafting.nodes import Candidate, Proposal
from hetspec.jit import part
from hetspec.model import lanes
from hetspec.model.lanes import LANES

_COMPARED = 8  # candidates at least, among which perturbed scores are turned into chances
_LEAST_CHANCE = 1e-6
_FAR = 16.0  # what is less likely than the best by e**-16 is left out: of 10,000 such tokens one is drawn in 900 draws
_BLOCK = 64  # logits whose best is looked at before each of them is
_FLOOR = -128.0  # exp of what lies below -87 is 0
Logits = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a token is proposed. position: its absolute one. path: drafted tokens before it. count: at most so many."""

    sampling: Sampling
    noise: NoiseKey
    adjuster: Adjuster
    position: int
    path: Sequence[int]
    count: int


_NOTHING = Proposal((), 0.0)


class Proposer:
    """For logits of all or of a part of a vocabulary."""

    def __init__(self, vocab_size: int, ids: NDArray[np.intp] | None, barred: NDArray[np.intp]) -> None:
        """ids: the token of each logit, ascending; None: all of them. barred: ids that are never proposed."""
        self._all = np.arange(vocab_size)
        self._ids = self._all if ids is None else ids
        self._barred = np.flatnonzero(np.isin(self._ids, barred))

    def propose(self, logits: Logits, places: Sequence[Place]) -> list[Proposal]:
        """logits: [places, ids], may be written to."""
        logits[:, self._barred] = -np.inf
        plain = [i for i, place in enumerate(places) if not _is_odd(place)]
        if len(plain) == len(places):
            return _best(logits, self._ids, places)
        found = dict(zip(plain, _best(logits[plain], self._ids, [places[i] for i in plain]), strict=True))
        return [found[i] if i in found else self._propose_one(logits[i], place) for i, place in enumerate(places)]

    def _propose_one(self, logits: Logits, place: Place) -> Proposal:
        """Whatever the request asks for. An adjuster, above all a grammar, must see the whole vocabulary."""
        ids = self._ids
        if place.adjuster.changes(place.position):
            whole = np.full(len(self._all), -np.inf, np.float32)
            whole[ids] = logits
            logits, ids = whole, self._all
            try:
                place.adjuster.adjust(logits, place.path, place.position)
            except DeadEnd:
                return _NOTHING
            if logits.max() == -np.inf:
                return _NOTHING
        count = max(place.count, _COMPARED)
        best = perturbed(logits, place.sampling, place.noise, place.position, count, ids)
        chances = best.probabilities
        if place.sampling.temperature > 0:
            chances = np.exp((best.scores - best.scores[0]) * place.sampling.temperature)
            chances /= chances.sum()
        return Proposal(_listed(best.ids.tolist(), chances.tolist(), place.count), best.entropy)


def _is_odd(place: Place) -> bool:
    """Whether the native pass cannot tell what comes first."""
    s = place.sampling
    filters = s.temperature > 0 and (s.top_k > 0 or s.top_p < 1 or s.min_p > 0)
    return filters or place.adjuster.changes(place.position)


def _best(logits: Logits, ids: NDArray[np.intp], places: Sequence[Place]) -> list[Proposal]:
    temperatures = np.array([place.sampling.temperature for place in places])
    counts = [max(p.count, _COMPARED) if p.sampling.temperature else p.count for p in places]
    streams = np.zeros((len(places), 5), np.uint64)
    for i, place in enumerate(places):
        if place.sampling.temperature:
            streams[i] = stream_of(place.noise, place.position)
    tokens = np.zeros((len(places), max(counts, default=0)), np.intp)
    chances, entropies = np.zeros(tokens.shape), np.zeros(len(places))
    _best_of_rows(logits, ids, temperatures, streams, np.array(counts, np.intp), tokens, chances, entropies)
    rows = zip(tokens.tolist(), chances.tolist(), entropies.tolist(), places, strict=True)
    return [Proposal(_listed(found, shares, place.count), entropy) for found, shares, entropy, place in rows]


def _listed(tokens: Sequence[int], chances: Sequence[float], count: int) -> list[Candidate]:
    pairs = zip(tokens[:count], chances[:count], strict=True)
    return [(token, max(chance, _LEAST_CHANCE)) for token, chance in pairs if chance >= 0]


@part
def _best_of_rows(logits, ids, temperatures, streams, counts, tokens, chances, entropies):  # type: ignore[no-untyped-def]
    """tokens, chances: [rows, k], filled with the best counts[row] of each; chance -1 where there are fewer."""
    n = logits.shape[1]
    padded = (n + LANES - 1) // LANES * LANES
    row, logs = np.empty(padded, np.float32), np.full(padded, _FLOOR, np.float32)
    scores, near = np.empty(n, np.float64), np.empty(n, np.intp)
    for r in range(logits.shape[0]):
        row[:n] = logits[r]
        row[n:] = -np.inf
        best, found = chances[r, : counts[r]], tokens[r, : counts[r]]
        best[:] = -np.inf
        top = lanes.maximum(row.ctypes.data, padded)
        if temperatures[r] == 0:
            _likeliest(row, ids, n, best, found)
            for i in range(n):
                logs[i] = max(row[i] - top, np.float32(_FLOOR))
            mass, entropies[r] = _mass_and_entropy(logs, row)
            _to_chances(best, np.float64(top), mass)
        else:
            count = 0
            for i in range(n):
                scores[count] = (np.float64(row[i]) - np.float64(top)) / temperatures[r]
                logs[i] = max(scores[count], _FLOOR)
                near[count] = ids[i]
                count += scores[count] > -_FAR
            _, entropies[r] = _mass_and_entropy(logs, row)
            race(scores[:count], near[:count], streams[r], best, found)
            mass = 0.0
            for i in range(best.shape[0]):
                best[i] *= temperatures[r]
                mass += math.exp(best[i] - best[0])
            _to_chances(best, best[0], mass)


@part
def _likeliest(row, ids, n, best, found):  # type: ignore[no-untyped-def]
    address = row.ctypes.data
    for start in range(0, n, _BLOCK):
        stop = min(start + _BLOCK, n)
        if lanes.maximum(address + start * 4, (stop - start + LANES - 1) // LANES * LANES) > best[-1]:
            for i in range(start, stop):
                keep_best(np.float64(row[i]), ids[i], best, found)


@part
def _mass_and_entropy(logs, shares):  # type: ignore[no-untyped-def]
    """Z, the sum of exp(logs), and log Z - sum of exp(log) log / Z. shares: room for exp(logs), of the same length."""
    shares[:] = logs
    address, n = shares.ctypes.data, shares.shape[0]
    lanes.exp_minus(address, np.float32(0.0), n)
    mass = np.float64(lanes.total(address, n))
    return mass, max(0.0, math.log(mass) - np.float64(lanes.dot(address, logs.ctypes.data, n)) / mass)


@part
def _to_chances(best, top, mass):  # type: ignore[no-untyped-def]
    for i in range(best.shape[0]):
        best[i] = math.exp(best[i] - top) / mass if best[i] > -np.inf else -1.0
