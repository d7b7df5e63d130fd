"""Checkpoints as they come: GGUF files, Hugging Face directories and draft folders, behind one face."""

from hetspec.model.checkpoint.base import Checkpoint
from hetspec.model.checkpoint.errors import CheckpointError
from hetspec.model.checkpoint.formats import open_checkpoint, open_draft

__all__ = ["Checkpoint", "CheckpointError", "open_checkpoint", "open_draft"]
