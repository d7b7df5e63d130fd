"""Checkpoints as they come: GGUF files and Hugging Face directories, behind one face."""

from hetspec.model.checkpoint.base import Checkpoint
from hetspec.model.checkpoint.errors import CheckpointError
from hetspec.model.checkpoint.formats import open_checkpoint

__all__ = ["Checkpoint", "CheckpointError", "open_checkpoint"]
