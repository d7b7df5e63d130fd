"""Distils a student from what the target said: cross-entropy against the target's own distribution, over draft steps."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as f

from hetspec.training.generation import Said
from hetspec.training.student import Student
from hetspec.training.talk import ANSWERED, ASKED

_ASKED_WEIGHT = 0.3  # of a token in the user's turn, against one of the answer
_MAX_LENGTH = 400


@dataclass(frozen=True, slots=True)
class Batch:
    """tokens: int64 [batch, length]. features: float32 [batch, length, hidden], position i's of token i - 1.

    teacher_ids (trimmed; 0 where outside) and teacher: [batch, length, TOP], of what follows the position; all zero where
    nothing was drawn. weights: [batch, length].
    """

    tokens: Tensor
    features: Tensor
    teacher_ids: Tensor
    teacher: Tensor
    weights: Tensor


class Collator:
    """Conversations to batches. trimmed: ids of the student's vocabulary in the target's, ascending."""

    def __init__(self, trimmed: NDArray[np.int64], vocab_size: int) -> None:
        self._places = np.full(vocab_size, -1, np.int64)
        self._places[trimmed] = np.arange(len(trimmed))

    def collate(self, said: Sequence[Said]) -> Batch:
        length = min(max(map(len, said)), _MAX_LENGTH) - 1
        fields = [self._fields(one, length) for one in said]
        return Batch(*(torch.from_numpy(np.stack(column)) for column in zip(*fields, strict=True)))

    def _fields(self, one: Said, length: int) -> tuple[NDArray[np.generic], ...]:
        """The first token has no row before it: it is left out."""
        stop = min(len(one), length + 1)
        rows = slice(1, stop)
        places = self._places[one.top_ids[rows]]
        teacher = np.exp(one.top_logprobs[rows].astype(np.float32)) * (places >= 0)
        weights = np.zeros(stop - 1, np.float32)
        following = one.origins[2:stop]
        weights[: len(following)] = (following == ANSWERED) + _ASKED_WEIGHT * (following == ASKED)
        columns = (
            one.tokens[rows].astype(np.int64),
            one.hidden[: stop - 1].astype(np.float32),
            np.maximum(places, 0),
            teacher,
            weights * (teacher.sum(-1) > 0),
        )
        return tuple(np.pad(c, [(0, length - len(c))] + [(0, 0)] * (c.ndim - 1)) for c in columns)


def batches(said: Sequence[Said], collator: Collator, rows: int, seed: int) -> Iterator[Batch]:
    """Every conversation once, in an order that `seed` decides; those of a batch are about equally long."""
    rng = np.random.default_rng(seed)
    noisy = np.array([len(one) * rng.uniform(0.9, 1.1) for one in said])
    order = np.argsort(noisy)
    groups: list[list[int]] = [[]]
    for place in order:
        if (len(groups[-1]) + 1) * min(len(said[place]), _MAX_LENGTH) > rows and groups[-1]:
            groups.append([])
        groups[-1].append(int(place))
    for group in rng.permutation(len(groups)):
        yield collator.collate([said[place] for place in groups[group]])


def loss_of(student: Student, batch: Batch, steps: int, decay: float) -> Tensor:
    """Mean over scored positions; a later step counts `decay` times the one before."""
    outputs = student.unroll(batch.tokens, batch.features if student.config.fed else None, steps)
    total, mass = torch.zeros(()), 0.0
    for step, output in enumerate(outputs):
        scored = shifted(batch.weights, step).nonzero(as_tuple=True)
        weights = shifted(batch.weights, step)[scored]
        losses = _cross_entropy(student.logits(output[scored]), batch, scored, step)
        scale = decay**step
        total = total + scale * (losses * weights).sum()
        mass += scale * float(weights.sum())
    return total / mass


def _cross_entropy(logits: Tensor, batch: Batch, scored: tuple[Tensor, ...], step: int) -> Tensor:
    ids, teacher = shifted(batch.teacher_ids, step)[scored], shifted(batch.teacher, step)[scored]
    log_mass = logits.logsumexp(-1, keepdim=True)
    return -(teacher * (logits.gather(-1, ids) - log_mass)).sum(-1)


def shifted(values: Tensor, step: int) -> Tensor:
    """Along the length: what a chain's step reaches from each position; zero behind the end."""
    if not step:
        return values
    pad = [0, 0] * (values.ndim - 2) + [0, step]
    return f.pad(values[:, step:], pad)


def learning_rate(done: float, peak: float) -> float:
    """done: share of the training, in [0, 1]. A short warm-up, then half a cosine down to a hundredth."""
    warm = min(1.0, done / 0.02)
    return peak * warm * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * done)))


@torch.no_grad()
def accept_length(student: Student, said: Sequence[Said], collator: Collator, steps: int) -> tuple[float, list[float]]:
    """Of chains along greedy answers: mean tokens a round, the bonus counted; and how often each step was right."""
    rounds = tokens = 0
    right, tried = np.zeros(steps), np.zeros(steps)
    for one in said:
        batch = collator.collate([one])
        outputs = student.unroll(batch.tokens, batch.features if student.config.fed else None, steps)
        best = torch.stack([student.logits(output[0]).argmax(-1) for output in outputs]).numpy()
        wanted = np.stack([shifted(batch.teacher_ids, step)[0, :, 0].numpy() for step in range(steps)])
        inside = np.stack([shifted(batch.teacher, step)[0, :, 0].numpy() for step in range(steps)]) > 0
        hit = (best == wanted) & inside
        answer = np.flatnonzero(one.origins[2:_MAX_LENGTH] == ANSWERED)
        if len(answer) == 0:
            continue
        at, end = int(answer[0]), int(answer[-1])
        while at <= end:
            run = 0
            while run < min(steps, end - at) and hit[run, at]:
                run += 1
            for step in range(min(run + 1, steps)):
                tried[step] += 1
                right[step] += step < run
            rounds += 1
            tokens += run + 1
            at += run + 1
    return tokens / max(1, rounds), list(right / np.maximum(tried, 1))
