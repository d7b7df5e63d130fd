"""Where to cut: the threshold of a recall, and what a threshold does.

A predictor's log chances fall down a path, so a node is kept exactly where it and its ancestors reach the threshold.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

CONFIDENCE = 0.9
"""Of a threshold: how often such a choice gives the recall or more."""


@dataclass(frozen=True, slots=True)
class Cut:
    """What a threshold does to nodes. lost: accepted ones dropped. others: not accepted."""

    accepted: int
    lost: int
    others: int
    dropped: int

    @property
    def recall(self) -> float:
        return 1 - self.lost / max(1, self.accepted)

    @property
    def pruned(self) -> float:
        return self.dropped / max(1, self.others)


def cut_of(log_chances: NDArray[np.float64], accepted: NDArray[np.bool_], threshold: float | None) -> Cut:
    """Of nodes, without roots. threshold None drops nothing."""
    dropped = log_chances < (-math.inf if threshold is None else threshold)
    right = int(np.count_nonzero(accepted))
    return Cut(
        right,
        int(np.count_nonzero(dropped & accepted)),
        len(accepted) - right,
        int(np.count_nonzero(dropped & ~accepted)),
    )


def threshold_of(log_chances: NDArray[np.float64], losses: int) -> float | None:
    """The highest that drops at most so many of these accepted nodes; None where that is not even none, or all."""
    if not 0 <= losses < len(log_chances):
        return None
    return float(np.sort(log_chances)[losses])


def allowed_losses(accepted: int, recall: float) -> int:
    """How many of so many accepted nodes may be lost for the recall on others like them to be reached, with CONFIDENCE.

    The largest k whose chance of k losses or fewer is at most 1 - CONFIDENCE where each node is lost with chance
    1 - recall: Clopper and Pearson's bound. -1 where the nodes are too few to tell even without a loss.
    """
    total, miss = -1, 1 - recall
    if miss <= 0:
        return -1
    chance = 0.0
    for losses in range(accepted + 1):
        chance += math.exp(_log_binomial(accepted, losses, miss))
        if chance > 1 - CONFIDENCE:
            break
        total = losses
    return total


def _log_binomial(n: int, k: int, p: float) -> float:
    ways = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
    return ways + k * math.log(p) + (n - k) * math.log1p(-p)
