"""The early-exit predictor while it is fitted: `hetspec.model.early_exit.Predictor` with gradients.

Every row of a tree says what the target chooses behind it, the rejected ones too, so every family of siblings is an
example: which of them is right, or that none is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as f

from hetspec.model.early_exit import DRAFT_FEATURES, MATCHES, DraftedRows, draft_features, rms_norm

_NO_WEIGHT = 1e-3  # standard deviation of what begins at about nothing


@dataclass(frozen=True, slots=True)
class Families:
    """Trees as tensors. Of the rows, [rows, h]: themselves, normed, and their tokens' embeddings. Of the nodes: their
    rows, their parents', the draft's features [nodes, DRAFT_FEATURES], and 1.0 where a node is what follows its parent.
    weights: of a row's family, its children, in the loss; 0 where it has none, [rows]."""

    rows: Tensor
    embeddings: Tensor
    nodes: Tensor
    parents: Tensor
    draft: Tensor
    right: Tensor
    weights: Tensor

    @classmethod
    def of(
        cls,
        drafted: DraftedRows,
        hidden: NDArray[np.float16],
        embeddings: NDArray[np.float32],
        choices: NDArray[np.int64],
        weights: NDArray[np.float32],
        rms_eps: float,
    ) -> Families:
        nodes = drafted.nodes
        parents = drafted.parents[nodes]
        has_family = np.isin(np.arange(len(weights)), parents)
        return cls(
            torch.from_numpy(rms_norm(hidden.astype(np.float32), rms_eps)),
            torch.from_numpy(embeddings),
            torch.from_numpy(nodes),
            torch.from_numpy(parents),
            torch.from_numpy(draft_features(drafted)),
            torch.from_numpy((choices[parents] == drafted.tokens[nodes]).astype(np.float32)),
            torch.from_numpy(np.where(has_family, weights, 0.0).astype(np.float32)),
        )


class Strength(nn.Module):
    """Features to the strength of a candidate; it knows their usual size."""

    def __init__(self, features: int, units: int) -> None:
        super().__init__()
        self.mean = nn.Buffer(torch.zeros(features))
        self.scale = nn.Buffer(torch.ones(features))
        self.first = nn.Linear(features, units)
        self.second = nn.Linear(units, 1)

    def begin(self, features: Tensor) -> None:
        self.mean.copy_(features.mean(0))
        self.scale.copy_(features.std(0).clamp(min=1e-3))

    def forward(self, features: Tensor) -> Tensor:
        inner = self.first((features - self.mean) / self.scale)
        found: Tensor = self.second(f.silu(inner)).squeeze(-1)
        return found

    @torch.no_grad()
    def weights(self) -> dict[str, NDArray[np.float32]]:
        first = self.first.weight / self.scale
        bias = self.first.bias - first @ self.mean
        named = {"first": first, "first_bias": bias, "second": self.second.weight[0], "second_bias": self.second.bias}
        return {name: values.detach().numpy().copy() for name, values in named.items()}


class DraftAlone(nn.Module):
    """Knows the draft's features only."""

    def __init__(self, units: int) -> None:
        super().__init__()
        self.strength = Strength(DRAFT_FEATURES, units)

    def begin(self, families: Families) -> None:
        self.strength.begin(families.draft)

    def forward(self, families: Families) -> Tensor:
        found: Tensor = self.strength(families.draft)
        return found

    def weights(self) -> dict[str, NDArray[np.float32]]:
        return self.strength.weights()


class Network(nn.Module):
    """See `Predictor` for the names of its weights."""

    def __init__(self, wanted: Tensor, bias: Tensor, held: Tensor, row_features: int, units: int, drop: float) -> None:
        super().__init__()
        self.wanted = nn.Parameter(wanted.clone())
        self.wanted_bias = nn.Parameter(bias.clone())
        self.held = nn.Parameter(held.clone())
        size = wanted.shape[1]
        self.above = nn.Parameter(torch.randn(row_features, size) / size**0.5)
        self.own = nn.Parameter(torch.randn(row_features, size) / size**0.5)
        self.strength = Strength(DRAFT_FEATURES + MATCHES + 2 * row_features, units)
        self.drop = drop

    @torch.no_grad()
    def begin(self, families: Families) -> None:
        self.strength.begin(self._features(families))

    def forward(self, families: Families) -> Tensor:
        found: Tensor = self.strength(self._features(families))
        return found

    @torch.no_grad()
    def weights(self) -> dict[str, NDArray[np.float32]]:
        mine = {name: p.detach().numpy().copy() for name, p in self.named_parameters() if "." not in name}
        return mine | self.strength.weights()

    def _features(self, one: Families) -> Tensor:
        asked = one.rows @ self.wanted.T + self.wanted_bias
        match = (asked[one.parents] * (one.embeddings[one.nodes] @ self.held.T)).sum(-1)
        best = match.new_full((len(one.rows),), -torch.inf).scatter_reduce(0, one.parents, match, "amax")
        rows = f.dropout(one.rows, self.drop, self.training)
        sides = (rows @ self.above.T)[one.parents], rows[one.nodes] @ self.own.T
        return torch.cat((one.draft, match[:, None], (match - best[one.parents])[:, None], *sides), 1)


def family_loss(strengths: Tensor, one: Families) -> Tensor:
    """Cross-entropy of what follows each parent, one of its children or none; the mean by the families' weights."""
    clipped = strengths.clamp(-60, 60)
    mass = torch.ones(len(one.rows)).index_add(0, one.parents, clipped.exp())
    of_right = torch.zeros(len(one.rows)).index_add(0, one.parents, clipped * one.right)
    return ((mass.log() - of_right) * one.weights).sum() / one.weights.sum()
