"""The early-exit predictor while it is fitted: `hetspec.model.early_exit.Predictor` with gradients.

Every accepted row says what the target chooses behind it, so every family of siblings below one is an example: which of
them is right, or that none is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as f

from hetspec.model.early_exit import DRAFT_FEATURES, MATCHES, draft_features, rms_norm
from hetspec.training.early_exit.data import NO_CHOICE, Trees
from hetspec.training.early_exit.lens import Lens


@dataclass(frozen=True, slots=True)
class Shape:
    """drop: of the rows' entries, while it learns."""

    rank: int = 128
    bends: int = 256
    answers: int = 32
    row_features: int = 24
    units: int = 32
    drop: float = 0.15


@dataclass(frozen=True, slots=True)
class Families:
    """Siblings as tensors, a family below each parent.

    parents [families, h], nodes [nodes, h]: their rows, normed. embeddings: [nodes, h], of the nodes' tokens. family:
    which one a node belongs to. draft: [nodes, DRAFT_FEATURES]. noise: [nodes], of the node's token. right: 1.0 where a
    node is what follows its parent. weights: [families], in the loss: 0 where nothing follows.
    """

    parents: Tensor
    nodes: Tensor
    embeddings: Tensor
    family: Tensor
    draft: Tensor
    noise: Tensor
    right: Tensor
    weights: Tensor

    @classmethod
    def of(cls, trees: Trees, layer: int, embedding: NDArray[np.float32], rms_eps: float) -> Families:
        """embedding: the target's, [vocab, h]."""
        drafted, rows = trees.drafted, trees.hidden[layer]
        nodes = drafted.nodes
        above = drafted.parents[nodes]
        parents, family = np.unique(above, return_inverse=True)
        return cls(
            torch.from_numpy(rms_norm(rows[parents].astype(np.float32), rms_eps)),
            torch.from_numpy(rms_norm(rows[nodes].astype(np.float32), rms_eps)),
            torch.from_numpy(embedding[drafted.tokens[nodes]]),
            torch.from_numpy(family),
            torch.from_numpy(draft_features(drafted)),
            torch.from_numpy(drafted.noise[nodes]),
            torch.from_numpy((trees.choices[above] == drafted.tokens[nodes]).astype(np.float32)),
            torch.from_numpy((trees.choices[parents] != NO_CHOICE).astype(np.float32)),
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

    def __init__(self, lens: Lens, shape: Shape) -> None:
        super().__init__()
        size = lens.straight.in_features
        self.lens = lens
        self.asked = nn.Linear(size, shape.answers)
        self.answered = nn.Linear(size, shape.answers)
        self.above = nn.Parameter(torch.randn(shape.row_features, size) / size**0.5)
        self.own = nn.Parameter(torch.randn(shape.row_features, size) / size**0.5)
        self.strength = Strength(DRAFT_FEATURES + MATCHES + 2 * shape.row_features, shape.units)
        self.drop = shape.drop

    @torch.no_grad()
    def begin(self, families: Families) -> None:
        self.strength.begin(self._features(families))

    def forward(self, families: Families) -> Tensor:
        found: Tensor = self.strength(self._features(families))
        return found

    @torch.no_grad()
    def weights(self) -> dict[str, NDArray[np.float32]]:
        named = {
            "asked": self.asked.weight, "asked_bias": self.asked.bias, "answered": self.answered.weight,
            "answered_bias": self.answered.bias, "above": self.above, "own": self.own,
        }  # fmt: skip
        mine = {name: values.detach().numpy().copy() for name, values in named.items()}
        return mine | self.lens.weights() | self.strength.weights()

    @torch.no_grad()
    def round(self) -> None:
        """What reads rows and embeddings, to numbers that float16 holds."""
        for name, parameter in self.named_parameters():
            if not name.startswith("strength."):
                parameter.copy_(parameter.half())

    def _features(self, one: Families) -> Tensor:
        family = one.family
        match = (self.lens.wanted(one.parents)[family] * self.lens.held(one.embeddings)).sum(-1) + one.noise
        best = match.new_full((len(one.parents),), -torch.inf).scatter_reduce(0, family, match, "amax")
        parents, nodes = (f.dropout(rows, self.drop, self.training) for rows in (one.parents, one.nodes))
        agreement = (self.asked(parents)[family] * self.answered(nodes)).sum(-1)
        told = torch.stack((match, match - best[family], agreement, one.noise), 1)
        return torch.cat((one.draft, told, (parents @ self.above.T)[family], nodes @ self.own.T), 1)


def family_loss(strengths: Tensor, one: Families) -> Tensor:
    """Cross-entropy of what follows each parent, one of its children or none; the mean by the families' weights."""
    clipped = strengths.clamp(-60, 60)
    mass = torch.ones(len(one.weights)).index_add(0, one.family, clipped.exp())
    of_right = torch.zeros(len(one.weights)).index_add(0, one.family, clipped * one.right)
    return ((mass.log() - of_right) * one.weights).sum() / one.weights.sum()
