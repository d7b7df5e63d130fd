"""The training loop: batches of a corpus in an order that a seed decides, and checkpoints to go on from.

Every random choice comes from (seed, epoch) or (seed, step), so that a run that goes on from a checkpoint comes to the
weights of one that was never interrupted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hetspec.training.corpus.held_out import is_held_out
from hetspec.training.corpus.said import Said
from hetspec.training.corpus.shards import Shard
from hetspec.training.draft.batches import Collator, deal
from hetspec.training.draft.loss import LossOptions, draft_loss
from hetspec.training.draft.student import Student
from hetspec.training.errors import TrainingError

_SHARDS_AT_ONCE = 4  # conversations of so many are dealt together
_WARM_UP = 0.02  # of the training
_LAST_RATE = 0.01  # of the peak
_MAX_NORM = 1.0


@dataclass(frozen=True, slots=True)
class Course:
    """epochs: times the corpus is gone through. peak_rate: the highest learning rate. batch_rows: tokens a batch.

    first_alone: share of the training in which only the first draft step is taught, which takes a fraction of the time.
    """

    seed: int = 0
    epochs: int = 3
    peak_rate: float = 8e-3
    batch_rows: int = 2048
    first_alone: float = 0.5
    loss: LossOptions = field(default_factory=LossOptions)


@dataclass(frozen=True, slots=True)
class Step:
    """One that was taken. done: share of the training so far. rows: tokens of its batch."""

    number: int
    done: float
    rows: int
    loss: float


class Distillation:
    """Iterate `steps` to train. identity: what a checkpoint must have been made for."""

    def __init__(
        self, student: Student, shards: Sequence[Shard], collator: Collator, course: Course, identity: str
    ) -> None:
        self.student = student
        self._shards = list(shards)
        self._collator = collator
        self._course = course
        self._identity = identity
        self._optimiser = torch.optim.AdamW(
            student.parameters(), course.peak_rate, betas=(0.9, 0.95), weight_decay=0.01, fused=True
        )
        self._step = 0
        self._next = (0, 0, 0)  # epoch, window, batch
        self._windows = -(-len(self._shards) // _SHARDS_AT_ONCE)

        self.done = 0.0  # share of the training

    def steps(self) -> Iterator[Step]:
        """From where the training is to its end."""
        while self._next[0] < self._course.epochs:
            epoch, window, first = self._next
            batches = self._deal(epoch, window)
            for place in range(first, len(batches)):
                self.done = (epoch + (window + place / len(batches)) / self._windows) / self._course.epochs
                self._next = (epoch, window, place + 1)
                yield self._take(batches[place])
            self._next = (epoch, window + 1, 0) if window + 1 < self._windows else (epoch + 1, 0, 0)

    def save(self, path: Path) -> None:
        """Atomically."""
        state = {
            "identity": self._identity,
            "step": self._step,
            "next": self._next,
            "done": self.done,
            "student": self.student.state_dict(),
            "optimiser": self._optimiser.state_dict(),
        }
        temporary = path.with_name(f".{path.name}.tmp")
        torch.save(state, temporary)
        temporary.replace(path)

    def load(self, path: Path) -> None:
        """Goes on from a checkpoint. Raises TrainingError for one of another training."""
        state: dict[str, Any] = torch.load(path, weights_only=True)
        if state["identity"] != self._identity:
            raise TrainingError(f"{path}: a checkpoint of another training: remove it, or name another --work folder")
        self._step, self._next, self.done = state["step"], state["next"], state["done"]
        self.student.load_state_dict(state["student"])
        self._optimiser.load_state_dict(state["optimiser"])

    def _deal(self, epoch: int, window: int) -> list[list[Said]]:
        order = np.random.default_rng([self._course.seed, epoch]).permutation(len(self._shards))
        chosen = order[window * _SHARDS_AT_ONCE : (window + 1) * _SHARDS_AT_ONCE]
        said = [one for place in chosen for one in self._shards[place].read() if not is_held_out(one) and len(one) > 1]
        rng = np.random.default_rng([self._course.seed, epoch, window])
        return deal(said, self._collator.max_length, self._course.batch_rows, rng)

    def _take(self, said: Sequence[Said]) -> Step:
        batch = self._collator.collate(said)
        generator = torch.Generator()
        generator.manual_seed(int(np.random.SeedSequence([self._course.seed, self._step]).generate_state(1)[0]))
        for group in self._optimiser.param_groups:
            group["lr"] = learning_rate(self.done, self._course.peak_rate)
        options = self._course.loss
        if self.done < self._course.first_alone:
            options = replace(options, steps=1)
        loss = draft_loss(self.student, batch, options, generator)
        self._optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.student.parameters(), _MAX_NORM)
        self._optimiser.step()
        self._step += 1
        return Step(self._step, self.done, batch.tokens.numel(), loss.item())


def learning_rate(done: float, peak: float) -> float:
    """done: share of the training, in [0, 1). A short warm-up, then half a cosine down to a hundredth."""
    warm = min(1.0, (done + 1e-4) / _WARM_UP)
    return peak * warm * (_LAST_RATE + (1 - _LAST_RATE) * 0.5 * (1 + math.cos(math.pi * done)))
