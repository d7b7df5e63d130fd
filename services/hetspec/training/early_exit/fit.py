"""Fits an early-exit predictor to trees: from a linear guess of the target's last rows, by gradient from there."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hetspec.model.checkpoint import Checkpoint
from hetspec.model.early_exit import rms_norm
from hetspec.training.early_exit.data import NO_CHOICE, Trees
from hetspec.training.early_exit.network import DraftAlone, Families, Network, family_loss

_RIDGE = 1e-3  # of the mean square of what is regressed on
_PATIENCE = 4  # epochs without gain before it ends


@dataclass(frozen=True, slots=True)
class Shape:
    rank: int = 64
    row_features: int = 24
    units: int = 32
    drop: float = 0.1  # of the rows' entries, while it learns


@dataclass(frozen=True, slots=True)
class Fitting:
    """seed: of all that is drawn. off_path: how much a family counts that hangs below a rejected node."""

    seed: int = 0
    epochs: int = 30
    rate: float = 1e-3
    decay: float = 0.05
    off_path: float = 0.3


@dataclass(frozen=True, slots=True)
class Tables:
    """Of the target, float32: embedding and head [vocab, h], the same where they are tied; final_norm [h]."""

    embedding: NDArray[np.float32]
    head: NDArray[np.float32]
    final_norm: NDArray[np.float32]
    rms_eps: float

    @classmethod
    def of(cls, target: Checkpoint) -> Tables:
        config = target.config
        embedding = target.tensor("embed")
        head = embedding if config.tied_head else target.tensor("head")
        return cls(embedding, head, target.tensor("final_norm"), config.rms_eps)

    def families(self, trees: Trees, layer: int, off_path: float) -> Families:
        weights = np.where(trees.accepted, 1.0, off_path).astype(np.float32)
        embeddings = self.embedding[trees.drafted.tokens]
        return Families.of(trees.drafted, trees.hidden[layer], embeddings, trees.choices, weights, self.rms_eps)


def begun(learned: Sequence[Trees], layer: int, tables: Tables, shape: Shape) -> Network:
    """With a linear map from the layer's rows to what the head reads, as far as logits of the seen tokens need it."""
    rows, final = (_normed(learned, one, tables.rms_eps) for one in (layer, max(learned[0].hidden)))
    inputs = np.concatenate((rows, np.ones((len(rows), 1), np.float32)), 1)
    lens = _regression(inputs, final * tables.final_norm)  # [h + 1, h]
    seen = np.unique(np.concatenate([np.concatenate((trees.drafted.tokens, trees.choices)) for trees in learned]))
    seen = seen[seen != NO_CHOICE]
    head = tables.head[seen]
    basis = np.linalg.svd(head, full_matrices=False)[2][: shape.rank]  # [rank, h]
    held = _regression(tables.embedding[seen], head @ basis.T).T
    wanted = (lens @ basis.T).T
    read, bias, holds = (torch.from_numpy(np.ascontiguousarray(one)) for one in (wanted[:, :-1], wanted[:, -1], held))
    return Network(read, bias, holds, shape.row_features, shape.units, shape.drop)


def _normed(learned: Sequence[Trees], layer: int, eps: float) -> NDArray[np.float32]:
    return rms_norm(np.concatenate([trees.hidden[layer] for trees in learned]).astype(np.float32), eps)


def _regression(inputs: NDArray[np.float32], outputs: NDArray[np.float32]) -> NDArray[np.float32]:
    """[inputs, outputs]"""
    gram = inputs.T @ inputs
    gram += np.eye(len(gram), dtype=np.float32) * (_RIDGE * np.trace(gram) / len(gram))
    found: NDArray[np.float32] = np.linalg.solve(gram, inputs.T @ outputs).astype(np.float32)
    return found


def fit(
    network: Network | DraftAlone,
    training: Sequence[Families],
    held_out: Families,
    fitting: Fitting,
    on_epoch: Callable[[float], None] = lambda loss: None,
) -> float:
    """training: a step each. Leaves the network as it was when best on what is held out; returns that loss."""
    torch.manual_seed(fitting.seed)
    network.begin(training[0])
    optimiser = torch.optim.AdamW(network.parameters(), lr=fitting.rate, weight_decay=fitting.decay)
    best, state, since = _loss(network, held_out), copy.deepcopy(network.state_dict()), 0
    for epoch in range(fitting.epochs):
        _set_rate(optimiser, fitting.rate * (1 - epoch / fitting.epochs))
        network.train()
        for place in torch.randperm(len(training)).tolist():
            one = training[place]
            loss = family_loss(network(one), one)
            optimiser.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimiser.step()
        now = _loss(network, held_out)
        on_epoch(now)
        since += 1
        if now < best:
            best, state, since = now, copy.deepcopy(network.state_dict()), 0
        if since == _PATIENCE:
            break
    network.load_state_dict(state)
    network.eval()
    return best


def _set_rate(optimiser: torch.optim.Optimizer, rate: float) -> None:
    for group in optimiser.param_groups:
        group["lr"] = rate


@torch.no_grad()
def _loss(network: Network | DraftAlone, families: Families) -> float:
    network.eval()
    loss: Tensor = family_loss(network(families), families)
    return float(loss)
