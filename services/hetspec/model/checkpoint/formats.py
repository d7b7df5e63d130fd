"""Opens a checkpoint of whatever format."""

from __future__ import annotations

from pathlib import Path

from hetspec.model.checkpoint.base import Checkpoint
from hetspec.model.checkpoint.gguf_checkpoint import GgufCheckpoint
from hetspec.model.checkpoint.hf_checkpoint import HfCheckpoint


def open_checkpoint(path: Path) -> Checkpoint:
    """Opens a GGUF file or a Hugging Face directory. Raises CheckpointError."""
    if path.is_dir():
        return HfCheckpoint(path)
    return GgufCheckpoint(path)
