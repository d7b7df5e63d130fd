"""What a draft model's tokens lose against a teacher's best ones, through a head too wide for its logits to be kept.

Logits are made, used and dropped chunk by chunk, gradients with them, so that they stay in the processor's cache.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hetspec.training.draft.agreement import disagreement

_CHUNK_ROWS = 128


@dataclass(frozen=True, slots=True)
class Teaching:
    """What is to become small: (1 - agreement) x the cross-entropy and agreement x the chance of another choice than
    the teacher's by the same noise, the mean of it at these temperatures."""

    agreement: float = 0.0
    temperatures: tuple[float, ...] = (0.8, 0.3)


@dataclass(frozen=True, slots=True)
class SampledHead:
    """The part of a head that a loss looks at: all tokens that the teacher names, and some drawn of the others.

    columns: [n], tokens of the head. places: [tokens], where each of `columns` stands among them. log_counts: [n],
    logarithm of how many tokens each stands for, so that the sum of exponentials is right in expectation.
    """

    columns: Tensor
    places: Tensor
    log_counts: Tensor

    @classmethod
    def draw(cls, named: Tensor, tokens: int, others: int, generator: torch.Generator) -> SampledHead:
        """named: token ids of any shape. others: how many of the rest to draw, at least 1."""
        is_other = torch.ones(tokens, dtype=torch.bool)
        is_other[named] = False
        kept, rest = (~is_other).nonzero().squeeze(1), is_other.nonzero().squeeze(1)
        drawn = rest[torch.randperm(len(rest), generator=generator)[:others]]
        columns = torch.cat((kept, drawn))
        places = torch.zeros(tokens, dtype=torch.long)
        places[columns] = torch.arange(len(columns))
        log_counts = torch.zeros(len(columns))
        log_counts[len(kept) :] = math.log(max(1, len(rest)) / max(1, len(drawn)))
        return cls(columns, places, log_counts)


def head_loss(
    x: Tensor,
    head: Tensor,
    ids: Tensor,
    teacher: Tensor,
    weights: Tensor,
    sampled: SampledHead | None = None,
    teaching: Teaching | None = None,
) -> Tensor:
    """Sum over rows of weight * loss.

    x: [rows, hidden]. head: [tokens, hidden]. ids, teacher: [rows, k], different tokens of the head and what the
    teacher gives them; a probability of 0 stands for nothing. weights: [rows]. sampled: the softmax over these tokens
    only, `ids` among them. teaching: None for the cross-entropy alone.
    """
    if sampled is None:
        log_counts = torch.zeros(len(head))
    else:
        head, ids, log_counts = head[sampled.columns], sampled.places[ids], sampled.log_counts
    given = x, head, ids, teacher, weights, log_counts, teaching or Teaching()
    loss: Tensor = _HeadLoss.apply(*given)  # type: ignore[no-untyped-call]
    return loss


class _HeadLoss(torch.autograd.Function):
    """Its gradients are made on the way forward, where the logits are."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        head: Tensor,
        ids: Tensor,
        teacher: Tensor,
        weights: Tensor,
        log_counts: Tensor,
        teaching: Teaching,
    ) -> Tensor:
        loss = torch.zeros((), dtype=torch.float64)
        dx, dhead = torch.empty_like(x), torch.zeros_like(head)
        for at in range(0, len(x), _CHUNK_ROWS):
            rows = slice(at, at + _CHUNK_ROWS)
            losses, slopes = _taught(x[rows] @ head.T, log_counts, ids[rows], teacher[rows], teaching)
            loss += (losses * weights[rows]).sum(dtype=torch.float64)
            slopes *= weights[rows, None]
            dx[rows] = slopes @ head
            dhead.addmm_(slopes.T, x[rows])
        ctx.save_for_backward(dx, dhead)
        return loss.to(x.dtype)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        dx, dhead = ctx.saved_tensors
        return dx * slopes[0], dhead * slopes[0], None, None, None, None, None


def _taught(
    logits: Tensor, log_counts: Tensor, ids: Tensor, teacher: Tensor, teaching: Teaching
) -> tuple[Tensor, Tensor]:
    """Losses, [rows], and their slopes by the logits."""
    share = teaching.agreement
    of_choices = [disagreement(logits, log_counts, ids, teacher, t) for t in teaching.temperatures if share]
    losses, slopes = _cross_entropy(logits, log_counts, ids, teacher)
    if share:
        losses, slopes = losses * (1 - share), slopes.mul_(1 - share)
    for chance, slope in of_choices:
        losses = losses + chance * (share / len(of_choices))
        slopes.add_(slope, alpha=share / len(of_choices))
    return losses, slopes


def _cross_entropy(logits: Tensor, log_counts: Tensor, ids: Tensor, teacher: Tensor) -> tuple[Tensor, Tensor]:
    """Its slopes take the logits' place."""
    mass, named = teacher.sum(1), logits.gather(1, ids)
    logits += log_counts
    best = logits.amax(1, keepdim=True)
    shares = logits.sub_(best).exp_()
    total = shares.sum(1, keepdim=True)
    losses = (total.log() + best).squeeze(1) * mass - (teacher * named).sum(1)
    slopes = shares.mul_(mass[:, None] / total).scatter_add_(1, ids, -teacher)
    return losses, slopes
