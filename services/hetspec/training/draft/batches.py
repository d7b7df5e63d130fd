"""Conversations to batches for the student."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as f

from hetspec.training.corpus.said import Said
from hetspec.training.corpus.talk import ANSWERED, ASKED, READ

_WEIGHTS = np.zeros(4, np.float32)  # of a token by its origin: answers are what will be drafted
_WEIGHTS[[ASKED, ANSWERED, READ]] = 0.3, 1.0, 0.3


@dataclass(frozen=True, slots=True)
class Batch:
    """tokens: int64 [batch, length]. features: float32 [batch, length, hidden], position i's of token i - 1.

    teacher_ids (of the head; 0 where it lacks the token) and teacher: [batch, length, TOP], of what follows the
    position, best first; a probability of 0 where the head lacks the token or the target was not asked.
    weights: [batch, length].
    """

    tokens: Tensor
    features: Tensor
    teacher_ids: Tensor
    teacher: Tensor
    weights: Tensor


class Collator:
    """head_ids: the head's tokens as the target counts them, ascending. max_length: of a conversation, in tokens.

    first: the first token that has a row: of a student that reads features the second one, before which stands one.
    """

    def __init__(self, head_ids: NDArray[np.int64], vocab_size: int, max_length: int, first: int) -> None:
        self.max_length = max_length
        self.first = first
        self._places = np.full(vocab_size, -1, np.int64)
        self._places[head_ids] = np.arange(len(head_ids))

    def collate(self, said: Sequence[Said]) -> Batch:
        length = min(max(map(len, said)), self.max_length) - self.first
        fields = [self._fields(one, length) for one in said]
        return Batch(*(torch.from_numpy(np.stack(column)) for column in zip(*fields, strict=True)))

    def _fields(self, one: Said, length: int) -> tuple[NDArray[np.generic], ...]:
        rows = slice(self.first, min(len(one), length + self.first))
        places = self._places[one.top_ids[rows]]
        teacher = np.exp(one.top_logprobs[rows].astype(np.float32)) * (places >= 0)
        columns = (
            one.tokens[rows].astype(np.int64),
            np.roll(one.hidden, 1, axis=0)[rows].astype(np.float32),
            np.maximum(places, 0),
            teacher,
            _WEIGHTS[one.origins_after[rows]] * (teacher.sum(-1) > 0),
        )
        return tuple(np.pad(c, [(0, length - len(c))] + [(0, 0)] * (c.ndim - 1)) for c in columns)


def deal(said: Sequence[Said], max_length: int, rows: int, rng: np.random.Generator) -> list[list[Said]]:
    """Every conversation once, about `rows` tokens a batch, in random order; those of a batch are about equally
    long."""
    lengths = [min(len(one), max_length) for one in said]
    groups: list[list[Said]] = [[]]
    for place in np.argsort(rng.uniform(0.9, 1.1, len(said)) * lengths, kind="stable"):
        if groups[-1] and (len(groups[-1]) + 1) * lengths[place] > rows:
            groups.append([])
        groups[-1].append(said[place])
    return [groups[place] for place in rng.permutation(len(groups))]


def shifted(values: Tensor, step: int) -> Tensor:
    """Along the length: what a chain's step reaches from each position; zero behind the end."""
    if not step:
        return values
    return f.pad(values[:, step:], [0, 0] * (values.ndim - 2) + [0, step])
