"""A GGUF file as a Checkpoint."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hetspec.model.checkpoint.base import Checkpoint, expected_shape, expected_shapes
from hetspec.model.checkpoint.errors import CheckpointError
from hetspec.model.checkpoint.gguf_config import Metadata, config_from_gguf
from hetspec.model.checkpoint.gguf_file import GgufFile
from hetspec.model.checkpoint.gguf_tokenizer import text_from_gguf
from hetspec.model.config import ModelConfig

_ROPE_FACTORS = "rope_freqs.weight"
_TOP = {"embed": "token_embd.weight", "final_norm": "output_norm.weight", "head": "output.weight"}
_LAYER = {
    "attn_norm": "attn_norm.weight",
    "q": "attn_q.weight",
    "k": "attn_k.weight",
    "v": "attn_v.weight",
    "o": "attn_output.weight",
    "q_bias": "attn_q.bias",
    "k_bias": "attn_k.bias",
    "v_bias": "attn_v.bias",
    "q_norm": "attn_q_norm.weight",
    "k_norm": "attn_k_norm.weight",
    "ffn_norm": "ffn_norm.weight",
    "gate": "ffn_gate.weight",
    "up": "ffn_up.weight",
    "down": "ffn_down.weight",
}


class GgufCheckpoint(Checkpoint):
    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = GgufFile(path)
        meta = Metadata(path, self._file.metadata)
        self.config = self._read_config(meta)
        self._check_tensors()
        # llama.cpp's converter interleaves the two halves of each head for this architecture, and for this one only.
        self._interleaved = meta.get("general.architecture", str) == "llama"
        self.text = text_from_gguf(meta, path, self.config.vocab_size)

    def files(self) -> dict[str, Path]:
        return {"": self.path}

    def _read_config(self, meta: Metadata) -> ModelConfig:
        embedding = self._file.tensors.get(_TOP["embed"])
        if embedding is None:
            raise CheckpointError(f"{self.path}: tensor {_TOP['embed']} is missing")
        factors = None
        if _ROPE_FACTORS in self._file.tensors:
            factors = tuple(self._file.rows(_ROPE_FACTORS).ravel().tolist())
        names = set(self._file.tensors)
        return config_from_gguf(meta, self.path, self.path.stem, embedding.shape[0], names, factors)

    def _check_tensors(self) -> None:
        left = set(self._file.tensors) - {_ROPE_FACTORS}
        for name, shape in expected_shapes(self.config):
            stored = _stored_name(name)
            tensor = self._file.tensors.get(stored)
            if tensor is None:
                raise CheckpointError(f"{self.path}: tensor {stored} is missing")
            if tensor.shape != shape:
                raise CheckpointError(
                    f"{self.path}: tensor {stored} has shape {list(tensor.shape)}, the metadata says {list(shape)}"
                )
            left.discard(stored)
        if left:
            raise CheckpointError(f"{self.path}: tensor {min(left)} is not known in a {self.config.family} model")

    def _read(self, name: str, start: int, stop: int) -> NDArray[np.float32]:
        stored = _stored_name("embed" if name == "head" and self.config.tied_head else name)
        member = name.rpartition(".")[2]
        if self._interleaved and member in ("q", "k", "q_bias", "k_bias"):
            heads = self.config.n_heads if member.startswith("q") else self.config.n_kv_heads
            return _halves(self._file.rows(stored, 0, expected_shape(self.config, name)[0]), heads)[start:stop]
        return self._file.rows(stored, start, stop)


def _stored_name(name: str) -> str:
    if name in _TOP:
        return _TOP[name]
    _, layer, member = name.split(".")
    return f"blk.{layer}.{_LAYER[member]}"


def _halves(interleaved: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Rows of each head from pair order (0, d/2, 1, d/2 + 1, ...) back to rotate-half order."""
    pairs = interleaved.reshape(heads, -1, 2, *interleaved.shape[1:])
    return pairs.swapaxes(1, 2).reshape(interleaved.shape)
