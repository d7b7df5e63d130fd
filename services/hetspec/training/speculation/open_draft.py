"""A draft model on the kernels that serve it, without a drafter service."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hetspec.drafting.draft_model import DraftModel
from hetspec.drafting.vocabulary_check import check_vocabularies
from hetspec.model.checkpoint import Checkpoint, open_draft
from hetspec.model.checkpoint.base import expected_shapes
from hetspec.model.head import Head
from hetspec.model.pack import PackFile, open_pack
from hetspec.model.pack_writer import write_pack
from hetspec.model.projection import FEATURES, Projection
from hetspec.model.transformer import Transformer
from hetspec.text.vocabulary import Vocabulary
from hetspec.training.cache import DEFAULT_CACHE
from hetspec.training.errors import TrainingError
from hetspec.training.target import Target


@dataclass(frozen=True, slots=True)
class OpenDraft:
    """barred: ids that stand for no token of the draft or of the target."""

    checkpoint: Checkpoint
    pack: PackFile
    barred: NDArray[np.intp]

    @classmethod
    def open(cls, path: Path, target: Target, cache_dir: Path = DEFAULT_CACHE) -> OpenDraft:
        """A draft folder, or any checkpoint of the target's vocabulary. Raises CheckpointError, TrainingError."""
        cache_dir = cache_dir.expanduser()
        checkpoint = open_draft(path.expanduser(), target.checkpoint, cache_dir)
        size, mine = checkpoint.config.vocab_size, Vocabulary(checkpoint.text.tokenizer_json)
        try:
            check_vocabularies(target.text.vocabulary, mine, size)
        except ValueError as error:
            raise TrainingError(f"{path}: {error}") from error
        barred = np.union1d(mine.missing(size), target.text.vocabulary.missing(size))
        pack = open_pack(write_pack(checkpoint, target.pack.layout.precision, cache_dir))
        return cls(checkpoint, pack, barred)

    def own_parameters(self) -> int:
        """Weights that a step computes with, the embedding not counted."""
        return sum(prod(shape) for name, shape in expected_shapes(self.checkpoint.config) if name != "embed")


class DraftParts:
    """What a draft model is made of, loaded."""

    def __init__(self, draft: OpenDraft, *, threads: int, max_rows: int, max_context: int, kv_tokens: int) -> None:
        config = draft.pack.layout.config
        self.transformer = Transformer(
            draft.pack, threads=threads, max_rows=max_rows, max_context=max_context, kv_capacity_tokens=kv_tokens
        )
        self.head = Head(draft.pack, threads=threads)
        self.features: Projection | None = None
        if config.reads_features:
            self.features = Projection(draft.pack, FEATURES, config.hidden_size, threads=threads)

    def model(self, barred: NDArray[np.intp]) -> DraftModel:
        """Closes with these parts."""
        return DraftModel(self.transformer, self.head, barred, self.features)

    def close(self) -> None:
        for part in (self.transformer, self.head, self.features):
            if part is not None:
                part.close()
