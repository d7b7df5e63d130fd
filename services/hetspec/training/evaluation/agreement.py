"""How well guesses agree with what was guessed at: matches, overlap of distributions, calibration."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

TOPS = (1, 4, 8)
_BINS = 10

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Confidence:
    """Guesses of about the same confidence. confidence: their mean probability. right: the share that was right."""

    guesses: int
    confidence: float
    right: float


@dataclass(frozen=True, slots=True)
class Agreement:
    """guesses: how many. top: by k, the share whose k best tokens hold the target's. overlap: 1 - total variation
    between the two distributions. calibration_error: mean distance between confidence and the share that is right,
    over ten bins of confidence, weighted by guesses (Guo et al., arXiv 1706.04599)."""

    guesses: int
    top: dict[int, float]
    overlap: float
    calibration_error: float
    reliability: tuple[Confidence, ...]


@dataclass(slots=True)
class AgreementCount:
    """Adds guesses up."""

    guesses: int = 0
    top: Floats = field(default_factory=lambda: np.zeros(len(TOPS)))
    overlap: float = 0.0
    bins: Floats = field(default_factory=lambda: np.zeros((_BINS, 3)))  # guesses, confidence, right

    def add(self, logits: NDArray[np.float32], ids: NDArray[np.intp] | None, target: Floats) -> None:
        """logits: [rows, tokens of the head]. ids: which tokens those are, ascending; None: all. target: [rows,
        vocabulary], probabilities."""
        shares = softmax(logits)
        wanted = target.argmax(axis=1)
        seen = target if ids is None else target[:, ids]
        ranks = _ranks(shares, wanted, ids)
        self.guesses += len(logits)
        self.top += [(ranks < k).sum() for k in TOPS]
        self.overlap += float(np.minimum(shares, seen).sum())
        confidence = shares.max(axis=1)
        bins = np.minimum((confidence * _BINS).astype(int), _BINS - 1)
        for column, values in enumerate((np.ones(len(logits)), confidence, ranks == 0)):
            self.bins[:, column] += np.bincount(bins, values, _BINS)

    def result(self) -> Agreement:
        guesses = max(1, self.guesses)
        filled = self.bins[self.bins[:, 0] > 0]
        reliability = tuple(Confidence(int(n), c / n, r / n) for n, c, r in filled.tolist())
        error = sum(one.guesses * abs(one.confidence - one.right) for one in reliability) / guesses
        top = dict(zip(TOPS, (self.top / guesses).tolist(), strict=True))
        return Agreement(self.guesses, top, self.overlap / guesses, error, reliability)


def softmax(logits: NDArray[np.float32]) -> Floats:
    shares: Floats = np.exp(logits - logits.max(axis=1, keepdims=True), dtype=np.float64)
    shares /= shares.sum(axis=1, keepdims=True)
    return shares


def _ranks(shares: Floats, wanted: NDArray[np.intp], ids: NDArray[np.intp] | None) -> NDArray[np.intp]:
    """How many tokens the draft puts before the wanted one; of one that its head lacks: all."""
    rows, tokens = shares.shape
    places = wanted if ids is None else np.searchsorted(ids, wanted)
    known = places < tokens
    if ids is not None:
        known &= ids[np.minimum(places, tokens - 1)] == wanted
    places = np.minimum(places, tokens - 1)
    own = shares[np.arange(rows), places][:, None]
    earlier = (shares > own).sum(axis=1) + ((shares == own) & (np.arange(tokens) < places[:, None])).sum(axis=1)
    ranks: NDArray[np.intp] = np.where(known, earlier, tokens)
    return ranks
