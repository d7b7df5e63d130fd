"""A target whose next token depends on the last one above all, and a draft folder that often agrees with it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from hetspec.model.checkpoint import open_checkpoint
from tests.draft_artefact import make_draft
from tests.models import make_checkpoint

Tensors = dict[str, NDArray[Any]]


def make_forgetful_target(folder: Path) -> Path:
    """Its layers add little to the last token's embedding."""
    make_checkpoint(folder, "qwen3", num_hidden_layers=4, tie_word_embeddings=False)

    def forget(tensors: Tensors) -> None:
        for name, values in tensors.items():
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                tensors[name] = values * np.float32(0.003)

    _rewrite(folder / "model.safetensors", forget)
    return folder


def make_agreeing_draft(folder: Path, target: Path, head_vocab_size: int) -> Path:
    """A part of the target's head above its embedding, with a layer between that adds nothing, and a little of the
    feature."""
    checkpoint = open_checkpoint(target)
    make_draft(folder, target, head_vocab_size=head_vocab_size)

    def agree(tensors: Tensors) -> None:
        tensors["embed_mix"] = np.eye(checkpoint.config.hidden_size, dtype=np.float16)
        tensors["feature_mix"] = tensors["feature_mix"] * np.float16(0.05)
        for name in ("layers.0.o", "layers.0.down"):
            tensors[name] = np.zeros_like(tensors[name])
        tensors["final_norm"] = checkpoint.tensor("final_norm").astype(np.float16)
        tensors["head"] = checkpoint.tensor("head")[tensors["head_ids"]].astype(np.float16)

    _rewrite(folder / "model.safetensors", agree)
    return folder


def _rewrite(path: Path, change: Callable[[Tensors], None]) -> None:
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path, metadata={"format": "pt"})
