"""The mean of drafts' weights: of one that was trained further, with what it was before or with another, it often
agrees with the target more than either (Model soups, arXiv 2203.05482).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from pathlib import Path

import numpy as np
import torch

from hetspec.model.checkpoint.draft_checkpoint import DraftCheckpoint
from hetspec.training.draft.folder import write_draft
from hetspec.training.draft.initial import continued_student
from hetspec.training.draft.student import Student
from hetspec.training.errors import TrainingError
from hetspec.training.target import Target


def average_drafts(folders: Sequence[Path], out: Path, target: Target, cache_dir: Path) -> None:
    """folders: at least one, of one shape; of the heads those tokens are kept that all know.

    Raises CheckpointError, OSError, TrainingError.
    """
    drafts = [DraftCheckpoint(folder, target.checkpoint, cache_dir) for folder in folders]
    shape = replace(drafts[0].config, head_vocab_size=0)
    for draft in drafts:
        if replace(draft.config, head_vocab_size=0, name=shape.name) != shape:
            raise TrainingError(f"{draft.path}: of another shape than {drafts[0].path}")
    head_ids = reduce(np.intersect1d, [draft.head_ids().astype(np.int64) for draft in drafts])
    is_trimmed = len(head_ids) < shape.vocab_size
    config = replace(shape, head_vocab_size=len(head_ids) if is_trimmed else 0)
    students = [continued_student(config, draft, head_ids, target.checkpoint) for draft in drafts]
    write_draft(out, _mean(students), head_ids, target)


@torch.no_grad()
def _mean(students: Sequence[Student]) -> Student:
    for parameters in zip(*(student.parameters() for student in students), strict=True):
        parameters[0].copy_(torch.stack([parameter.double() for parameter in parameters]).mean(0))
    return students[0]
