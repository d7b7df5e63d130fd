"""Writes a draft folder, as `hetspec.model.checkpoint.draft_checkpoint` describes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetspec.model.checkpoint.draft_checkpoint import CONFIG_FILE, WEIGHTS_FILE, DraftConfig
from hetspec.training.draft.student import Student
from hetspec.training.errors import TrainingError
from hetspec.training.target import Target
from hetspec.training.weights_file import save_weights


def write_draft(folder: Path, student: Student, head_ids: NDArray[np.int64], target: Target) -> None:
    """head_ids: of a trimmed head, ascending. Raises OSError; TrainingError where a weight is beyond float16."""
    tensors = _tensors(student)
    if student.config.head_vocab_size:
        tensors["head_ids"] = head_ids.astype(np.uint32)
    folder.mkdir(parents=True, exist_ok=True)
    save_weights(tensors, folder / WEIGHTS_FILE)
    config = DraftConfig(target.checkpoint.config.name, target.fingerprint, student.config)
    (folder / CONFIG_FILE).write_text(config.to_json())


def _tensors(student: Student) -> dict[str, NDArray[Any]]:
    tensors: dict[str, NDArray[Any]] = {}
    for name, values in student.state_dict().items():
        with np.errstate(over="ignore"):
            stored = values.numpy().astype(np.float16)
        if not np.isfinite(stored).all():
            raise TrainingError(f"tensor {name} holds a value that float16 does not")
        tensors[name.removesuffix(".weight")] = stored
    return tensors
