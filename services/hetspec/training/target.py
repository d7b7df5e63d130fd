"""The model that is learned from, opened as the services open it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hetspec.model.checkpoint import Checkpoint, open_checkpoint
from hetspec.model.pack import PackFile, open_pack
from hetspec.model.pack_writer import write_pack
from hetspec.text.tokenizer import TextModel
from hetspec.training.cache import DEFAULT_CACHE


@dataclass(frozen=True, slots=True)
class Target:
    """pack: what the kernels compute with, in the services' default precision unless told otherwise."""

    checkpoint: Checkpoint
    pack: PackFile
    text: TextModel
    fingerprint: str

    @classmethod
    def open(cls, path: Path, cache_dir: Path = DEFAULT_CACHE, precision: str = "int8") -> Target:
        """Raises CheckpointError, OSError."""
        cache_dir = cache_dir.expanduser()
        cache_dir.mkdir(parents=True, exist_ok=True)
        checkpoint = open_checkpoint(path.expanduser())
        pack = open_pack(write_pack(checkpoint, precision, cache_dir))
        return cls(checkpoint, pack, TextModel(checkpoint.text), checkpoint.fingerprint(cache_dir))
