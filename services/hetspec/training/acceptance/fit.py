"""Fits an acceptance head to judged tokens."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as f
from numpy.typing import NDArray
from torch import Tensor, nn

from hetspec.model.acceptance import log_odds
from hetspec.model.early_exit import rms_norm
from hetspec.training.acceptance.data import Judged

_BATCH = 64
_PATIENCE = 4  # epochs without gain before it ends


@dataclass(frozen=True, slots=True)
class Fitting:
    """rejection_weight: what a rejected token counts for, an accepted one counting 1 (SpecDec++, section 4.2); at 1 the
    chances are what they say. seed: of all that is drawn."""

    blocks: int = 1
    rejection_weight: float = 1.0
    seed: int = 0
    epochs: int = 30
    rate: float = 3e-4
    decay: float = 1.0
    drop: float = 0.5  # of the rows' entries, while it learns


class Head(nn.Module):
    """See AcceptanceHead for the names of its weights."""

    def __init__(self, hidden_size: int, fitting: Fitting) -> None:
        super().__init__()
        n, h = fitting.blocks, hidden_size
        self.blocks = nn.Parameter(torch.randn(n, h, h) / h**0.5)
        self.block_biases = nn.Parameter(torch.zeros(n, h))
        self.out = nn.Parameter(torch.zeros(h))
        self.out_bias = nn.Parameter(torch.zeros(1))
        self.own = nn.Parameter(torch.ones(1))  # it begins as the draft's own word
        self.drop = fitting.drop

    def forward(self, rows: Tensor, odds: Tensor) -> Tensor:
        """Logits [rows] of normed rows and the log odds of the draft's own probabilities."""
        x = f.dropout(rows, self.drop, self.training)
        for block, bias in zip(self.blocks, self.block_biases, strict=True):
            x = x + f.silu(x @ block.T + bias)
        return x @ self.out + self.out_bias + self.own * odds

    @torch.no_grad()
    def weights(self) -> dict[str, NDArray[np.float32]]:
        return {name: p.detach().numpy().copy() for name, p in self.named_parameters()}


def acceptance_loss(logits: Tensor, accepted: Tensor, rejection_weight: float) -> Tensor:
    """Binary cross-entropy, rejected tokens weighed; a mean by weight."""
    weights = torch.where(accepted > 0, 1.0, rejection_weight)
    losses = f.binary_cross_entropy_with_logits(logits, accepted, reduction="none")
    return (weights * losses).sum() / weights.sum()


def fit(
    training: Judged, held_out: Judged, rms_eps: float, fitting: Fitting, on_epoch: Callable[[float], None]
) -> dict[str, NDArray[np.float32]]:
    """The weights that were best on what is held out."""
    torch.manual_seed(fitting.seed)
    rows, odds, accepted = _tensors(training, rms_eps)
    held = _tensors(held_out, rms_eps)
    head = Head(rows.shape[1], fitting)
    optimiser = torch.optim.AdamW(head.parameters(), lr=fitting.rate, weight_decay=fitting.decay)
    best, state, since = float("inf"), copy.deepcopy(head.state_dict()), 0
    for epoch in range(fitting.epochs):
        for group in optimiser.param_groups:
            group["lr"] = fitting.rate * (1 - epoch / fitting.epochs)
        head.train()
        for chosen in torch.split(torch.randperm(len(rows)), _BATCH):
            logits = head(rows[chosen], odds[chosen])
            loss = acceptance_loss(logits, accepted[chosen], fitting.rejection_weight)
            optimiser.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        now = _loss(head, held, fitting)
        on_epoch(now)
        since += 1
        if now < best:
            best, state, since = now, copy.deepcopy(head.state_dict()), 0
        if since == _PATIENCE:
            break
    head.load_state_dict(state)
    return head.weights()


def _tensors(judged: Judged, rms_eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """Normed rows, log odds, what became of them."""
    parts = rms_norm(judged.rows, rms_eps), log_odds(judged.probabilities), judged.accepted.astype(np.float32)
    rows, odds, accepted = map(torch.from_numpy, parts)
    return rows, odds, accepted


@torch.no_grad()
def _loss(head: Head, held: tuple[Tensor, Tensor, Tensor], fitting: Fitting) -> float:
    head.eval()
    rows, odds, accepted = held
    return float(acceptance_loss(head(rows, odds), accepted, fitting.rejection_weight))
