"""What a student is taught: the target's distribution at every step of a chain, and the target's own next row."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional as f

from hetspec.training.draft.batches import Batch, shifted
from hetspec.training.draft.head_loss import SampledHead, Teaching, head_loss
from hetspec.training.draft.student import Student
from hetspec.training.draft.student_layer import norm


@dataclass(frozen=True, slots=True)
class LossOptions:
    """steps: of a chain. decay: weight of a step, against the one before. later_share: of the positions behind which
    the steps after the first are scored. teacher_tokens: of the target's best. sampled: other tokens of the head that
    a batch's softmax looks at; 0: all. feature_weight: of the distance between what a step gives and the target's row
    there, which the next step reads (EAGLE, arXiv 2401.15077). teaching: of a step's tokens.
    """

    steps: int = 3
    decay: float = 0.8
    later_share: float = 0.5
    teacher_tokens: int = 8
    sampled: int = 1500
    feature_weight: float = 0.0
    teaching: Teaching = field(default_factory=Teaching)


def draft_loss(student: Student, batch: Batch, options: LossOptions, generator: torch.Generator) -> Tensor:
    """Mean over scored positions."""
    outputs = student.unroll(batch.tokens, batch.features if student.config.reads_features else None, options.steps)
    total, mass = torch.zeros(()), 0.0
    for step, output in enumerate(outputs):
        scale = options.decay**step
        weights = shifted(batch.weights, step)
        if step:
            weights = weights * (torch.rand(weights.shape, generator=generator) < options.later_share)
        total = total + scale * _cross_entropy(student, batch, output, weights, step, options, generator)
        mass += scale * float(weights.sum())
    loss = total / max(mass, 1e-9)
    if options.feature_weight:
        distances = [options.decay**step * _distance(output, batch, step) for step, output in enumerate(outputs)]
        loss = loss + options.feature_weight * torch.stack(distances).sum()
    return loss


def _cross_entropy(
    student: Student,
    batch: Batch,
    output: Tensor,
    weights: Tensor,
    step: int,
    options: LossOptions,
    generator: torch.Generator,
) -> Tensor:
    """Summed over the positions whose weight is not 0. output: of the step. weights: [batch, length]."""
    scored = weights.nonzero(as_tuple=True)
    ids = shifted(batch.teacher_ids, step)[scored][:, : options.teacher_tokens]
    teacher = shifted(batch.teacher, step)[scored][:, : options.teacher_tokens]
    head, sampled = student.head.weight, None
    if options.sampled:
        sampled = SampledHead.draw(ids, len(head), options.sampled, generator)
    return head_loss(student.normed(output[scored]), head, ids, teacher, weights[scored], sampled, options.teaching)


def _distance(output: Tensor, batch: Batch, step: int) -> Tensor:
    """Between normed rows: what is read is normed."""
    target = shifted(batch.features, step + 1)
    there = target.abs().sum(-1) > 0
    return f.smooth_l1_loss(norm(output[there], None, 1e-5), norm(target[there], None, 1e-5))
