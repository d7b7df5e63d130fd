"""Early exit of drafted nodes (Lever, arXiv 2605.16786): which of a tree are not worth the target's later layers.

A node is accepted where its parent is and its token is what the target chooses behind the parent. So the question goes
to the parent's hidden row after some of the layers: is this token likely next? Siblings compete with each other and
with "none of them", helped by what the draft thought of them and by the node's own row. A node's chance is the product
down its path, the draft's gain reckoned anew with what the target knows by then. It never exceeds the parent's, so what
is kept is a tree. A node dropped by mistake costs acceptance; it never changes a token.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from hetspec.decoding.tree import TokenTree
from hetspec.v1.drafter_pb2 import DRAFT_SOURCE_LOOKUP

Rows = NDArray[np.float32]  # [rows, hidden]
Weights = Mapping[str, NDArray[np.float32]]

DRAFT_FEATURES = 5  # see `draft_features`
MATCHES = 4  # see `Predictor._features`
_LEAST_LOG = -14.0  # of a draft's probability
_LEAST = 1e-30  # below what is told apart, and no zero


@dataclass(frozen=True, slots=True)
class DraftedRows:
    """Trees as rows, tree after tree, a root before its nodes and parents before their children; each [rows].

    parents: int64, the row of a node's parent, -1 for a root. tokens: int64. log_probabilities: float32, the draft's of
    a node given its parent. sources: int64, drafter_pb2.DraftSource. noise: float32, as of
    `hetspec.decoding.noise.tree_noise`. The last three are 0 for a root.
    """

    parents: NDArray[np.int64]
    tokens: NDArray[np.int64]
    log_probabilities: NDArray[np.float32]
    sources: NDArray[np.int64]
    noise: NDArray[np.float32]

    @classmethod
    def of(
        cls,
        last: int,
        tree: TokenTree,
        probabilities: Sequence[float],
        sources: Sequence[int],
        noise: Sequence[float] | NDArray[np.floating],
    ) -> Self:
        """One tree below the token `last`."""
        return cls(
            np.array([-1, *(parent + 1 for parent in tree.parents)]),
            np.array([last, *tree.tokens]),
            np.log(np.maximum([1.0, *probabilities], _LEAST)).astype(np.float32),
            np.array([0, *sources]),
            np.array([0.0, *noise], np.float32),
        )

    @property
    def nodes(self) -> NDArray[np.int64]:
        """Rows that are no roots."""
        return np.flatnonzero(self.parents >= 0)

    def path_sums(self, values: NDArray[np.floating]) -> NDArray[np.float64]:
        """values: [nodes] or [nodes, k]. Their sums down to each row, float64 [rows] or [rows, k]; 0 for a root."""
        rows = len(self.parents)
        own = np.zeros((rows, *values.shape[1:]))
        own[self.nodes] = values
        above, sums = np.where(self.parents >= 0, self.parents, np.arange(rows)), own
        while True:  # every turn makes one level more right
            longer = own + sums[above]
            if np.array_equal(longer, sums, equal_nan=True):
                return sums
            sums = longer

    def ranks(self) -> NDArray[np.int64]:
        """Of each node among its siblings by the draft's probability, from 0, int64 [nodes]."""
        nodes = self.nodes
        parents = self.parents[nodes]
        order = np.lexsort((-self.log_probabilities[nodes], parents))
        is_first = np.diff(parents[order], prepend=-1) != 0
        first = np.maximum.accumulate(np.where(is_first, np.arange(len(nodes)), 0))
        ranks = np.empty(len(nodes), np.int64)
        ranks[order] = np.arange(len(nodes)) - first
        return ranks


def draft_features(drafted: DraftedRows) -> NDArray[np.float32]:
    """What the draft alone knows, [nodes, DRAFT_FEATURES]: log-probability, log gain, depth, rank, if looked up."""
    nodes = drafted.nodes
    logs = np.maximum(drafted.log_probabilities[nodes], _LEAST_LOG)
    gains, depths = drafted.path_sums(np.stack((logs, np.ones(len(nodes))), 1))[nodes].T
    looked_up = drafted.sources[nodes] == DRAFT_SOURCE_LOOKUP
    return np.stack((logs, gains, depths, np.log1p(drafted.ranks()), looked_up), 1).astype(np.float32)


def rms_norm(rows: Rows, eps: float) -> Rows:
    """Without a weight."""
    scale = np.sqrt(np.mean(np.square(rows), axis=1, keepdims=True) + np.float32(eps))
    normed: Rows = rows / scale
    return normed


class Predictor:
    """weights, all float32; h is the hidden size, b bends, a answers, k row features, u units:

    wanted [rank, h], wanted_bias [rank], bend [b, h], bend_bias [b], bent [rank, b]: of a parent's row, what should
    follow it; a straight reading and a bent one.
    held [rank, h]: of a token's embedding, what it is.
    asked, answered [a, h], asked_bias, answered_bias [a]: of the parent's and of the node's row, how they agree.
    above, own [k, h]: of the parent's and of the node's row.
    first [u, features], first_bias [u], second [u], second_bias [1]: of all features, how strong a candidate a node is.
    Rows are normed before, embeddings are not.
    """

    def __init__(self, weights: Weights, rms_eps: float) -> None:
        self._weights = weights
        self._eps = rms_eps
        self._of_parent = _side_by_side(weights, ("wanted", "bend", "asked", "above"))
        self._of_node = _side_by_side(weights, ("answered", "own"))

    def log_chances(self, drafted: DraftedRows, rows: Rows, embeddings: Rows) -> NDArray[np.float64]:
        """Of lying on the accepted path, float64 [rows], 0 for a root.

        rows: [rows, hidden], the target's hidden rows after the predictor's layer. embeddings: [rows, hidden], of the
        rows' tokens.
        """
        return log_chances(drafted, strengths(self._weights, self._features(drafted, rows, embeddings)))

    def keeps(self, drafted: DraftedRows, rows: Rows, embeddings: Rows, threshold: float) -> NDArray[np.bool_]:
        """bool [rows]: whose log chance is not below the threshold. A root's is not, a node's only if its parent's is
        not."""
        kept: NDArray[np.bool_] = self.log_chances(drafted, rows, embeddings) >= threshold
        return kept

    def _features(self, drafted: DraftedRows, rows: Rows, embeddings: Rows) -> NDArray[np.float32]:
        """[nodes, features]: the draft's; how far the token is what is wanted, its noise added, and how far beside the
        best sibling; how the rows agree; the noise; of the parent's row; of the own."""
        w, nodes = self._weights, drafted.nodes
        parents, family = np.unique(drafted.parents[nodes], return_inverse=True)
        normed = rms_norm(rows, self._eps)
        wanted, bend, asked, above = self._of_parent(normed[parents])
        answered, own = self._of_node(normed[nodes])
        wanted = wanted + w["wanted_bias"] + lively(bend + w["bend_bias"]) @ w["bent"].T
        noise = drafted.noise[nodes]
        match = np.einsum("nr,nr->n", wanted[family], embeddings[nodes] @ w["held"].T) + noise
        best = np.full(len(parents), -np.inf, np.float32)
        np.maximum.at(best, family, match)
        agreement = np.einsum("na,na->n", (asked + w["asked_bias"])[family], answered + w["answered_bias"])
        told = np.stack((match, match - best[family], agreement, noise), 1)
        return np.concatenate((draft_features(drafted), told, above[family], own), 1)


def _side_by_side(weights: Weights, names: Sequence[str]) -> Callable[[Rows], list[NDArray[np.float32]]]:
    """One product where there were several: rows to rows @ weights[name].T by name."""
    joined = np.ascontiguousarray(np.concatenate([weights[name] for name in names]).T)
    ends = np.cumsum([len(weights[name]) for name in names])[:-1]
    return lambda rows: np.split(rows @ joined, ends, axis=1)


def lively(inner: NDArray[np.float32]) -> NDArray[np.float32]:
    """x * sigmoid(x)"""
    found: NDArray[np.float32] = inner / (1 + np.exp(-np.maximum(inner, np.float32(-60))))
    return found


def strengths(weights: Weights, features: NDArray[np.float32]) -> NDArray[np.float32]:
    """first, second and their biases over [nodes, features]: [nodes]."""
    inner = lively(features @ weights["first"].T + weights["first_bias"])
    found: NDArray[np.float32] = inner @ weights["second"] + weights["second_bias"]
    return found


def log_chances(drafted: DraftedRows, strengths: NDArray[np.float32]) -> NDArray[np.float64]:
    """Of each row's path, float64 [rows]. strengths: [nodes]; "none of them" has strength 0."""
    parents = drafted.parents[drafted.nodes]
    clipped = np.clip(strengths.astype(np.float64), -60.0, 60.0)
    mass = np.ones(len(drafted.parents))
    np.add.at(mass, parents, np.exp(clipped))
    return drafted.path_sums(np.minimum(clipped - np.log(mass[parents]), 0.0))
