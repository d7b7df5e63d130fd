"""Opens a checkpoint of whatever format."""

from __future__ import annotations

from pathlib import Path

from hetspec.model.checkpoint.base import Checkpoint
from hetspec.model.checkpoint.draft_checkpoint import DraftCheckpoint, is_draft_folder
from hetspec.model.checkpoint.gguf_checkpoint import GgufCheckpoint
from hetspec.model.checkpoint.hf_checkpoint import HfCheckpoint


def open_checkpoint(path: Path) -> Checkpoint:
    """Opens a GGUF file or a Hugging Face directory. Raises CheckpointError."""
    if path.is_dir():
        return HfCheckpoint(path)
    return GgufCheckpoint(path)


def open_draft(path: Path, target: Checkpoint, cache_dir: Path | None = None) -> Checkpoint:
    """Opens a draft model for `target`: a draft folder, or any checkpoint. Raises CheckpointError."""
    if is_draft_folder(path):
        return DraftCheckpoint(path, target, cache_dir)
    return open_checkpoint(path)
