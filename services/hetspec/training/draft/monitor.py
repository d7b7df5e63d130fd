"""How far a student has come, by its own arithmetic: for the eye, while it is trained."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from hetspec.training.corpus.said import Said
from hetspec.training.corpus.talk import ANSWERED
from hetspec.training.draft.batches import Collator, shifted
from hetspec.training.draft.student import Student


@torch.no_grad()
def accept_length(student: Student, said: Sequence[Said], collator: Collator, steps: int) -> float:
    """Tokens a round of chains of `steps` along these answers, the bonus counted; 0 where there is none."""
    rounds = [length for one in said for length in _rounds(*_hits(student, one, collator, steps))]
    return sum(rounds) / len(rounds) if rounds else 0.0


def _hits(student: Student, one: Said, collator: Collator, steps: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Whether each step of the chain behind each row guesses right, [steps, rows], and which rows an answer follows."""
    batch = collator.collate([one])
    outputs = student.unroll(batch.tokens, batch.features if student.config.reads_features else None, steps)
    best = torch.stack([student.logits(output[0]).argmax(-1) for output in outputs])
    wanted = torch.stack([shifted(batch.teacher_ids, step)[0, :, 0] for step in range(steps)])
    known = torch.stack([shifted(batch.teacher, step)[0, :, 0] for step in range(steps)]) > 0
    follows = one.origins_after[collator.first :][: best.shape[1]] == ANSWERED
    return ((best == wanted) & known).numpy(), follows


def _rounds(hits: NDArray[np.bool_], follows: NDArray[np.bool_]) -> list[int]:
    lengths: list[int] = []
    rows = np.flatnonzero(follows)
    at, end = (int(rows[0]), int(rows[-1])) if len(rows) else (1, 0)
    while at <= end:
        run = 0
        while run < min(len(hits), end - at) and hits[run, at]:
            run += 1
        lengths.append(run + 1)
        at += run + 1
    return lengths
