"""One face for checkpoints of every format: a config, what text needs, a fingerprint, tensors by canonical names."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hetspec.model.checkpoint.errors import CheckpointError
from hetspec.model.config import ModelConfig
from hetspec.model.fingerprint import fingerprint
from hetspec.text.text_spec import TextSpec


class Checkpoint(ABC):
    """An open checkpoint, checked: every tensor that its config needs is there, whole and of the right shape.

    Names: embed, layers.{i}.{attn_norm, q, k, v, o, q_bias, k_bias, v_bias, q_norm, k_norm, ffn_norm, gate, up, down},
    final_norm, head; of a draft that reads features also feature_norm, feature_mix. Linear weights are
    [outputs, inputs]; q and k are in rotate-half order.
    """

    path: Path
    config: ModelConfig
    text: TextSpec

    @abstractmethod
    def files(self) -> dict[str, Path]:
        """Every file that the checkpoint is read from, by a label that does not depend on where the checkpoint lies."""

    @abstractmethod
    def _read(self, name: str, start: int, stop: int) -> NDArray[np.float32]:
        """Rows [start, stop) of a canonical tensor."""

    def fingerprint(self, cache_dir: Path | None = None) -> str:
        """Of the contents; remembered in `cache_dir` as long as the files keep their identity."""
        try:
            return fingerprint(self.files(), cache_dir)
        except OSError as error:
            raise CheckpointError(f"{self.path}: cannot be read: {error}") from error

    def head_ids(self) -> NDArray[np.uint32]:
        """The id that each of the head's rows stands for, ascending."""
        return np.arange(self.config.head_rows, dtype=np.uint32)

    def tensor(self, name: str) -> NDArray[np.float32]:
        """Raises KeyError for a name that the config does not have, CheckpointError for values that are not finite."""
        return self.rows(name, 0, expected_shape(self.config, name)[0])

    def rows(self, name: str, start: int, stop: int) -> NDArray[np.float32]:
        """Rows [start, stop) along the first dimension."""
        rows = self._read(name, start, stop)
        if not np.isfinite(rows).all():
            raise CheckpointError(f"{self.path}: tensor {name} holds a value that is not finite")
        return rows


def expected_shapes(config: ModelConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Canonical names and shapes of everything a checkpoint of this config must hold (a tied head is not listed)."""
    yield "embed", expected_shape(config, "embed")
    for layer in range(config.n_layers):
        for name, shape in _layer_shapes(config).items():
            yield f"layers.{layer}.{name}", shape
    if config.reads_features:
        yield "feature_norm", expected_shape(config, "feature_norm")
        yield "feature_mix", expected_shape(config, "feature_mix")
    yield "final_norm", expected_shape(config, "final_norm")
    if not config.tied_head:
        yield "head", expected_shape(config, "head")


def expected_shape(config: ModelConfig, name: str) -> tuple[int, ...]:
    """Raises KeyError for a name that the config does not have."""
    top = _top_shapes(config)
    if name in top:
        return top[name]
    prefix, layer, member = name.split(".") if name.count(".") == 2 else ("", "", "")
    if prefix != "layers" or not layer.isdecimal() or int(layer) >= config.n_layers:
        raise KeyError(name)
    return _layer_shapes(config)[member]


def _top_shapes(c: ModelConfig) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {
        "embed": (c.vocab_size, c.hidden_size),
        "final_norm": (c.hidden_size,),
        "head": (c.head_rows, c.hidden_size),
    }
    if c.reads_features:
        shapes |= {"feature_norm": (c.hidden_size,), "feature_mix": (c.hidden_size, c.hidden_size)}
    return shapes


def _layer_shapes(c: ModelConfig) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {
        "attn_norm": (c.hidden_size,),
        "q": (c.q_size, c.hidden_size),
        "k": (c.kv_size, c.hidden_size),
        "v": (c.kv_size, c.hidden_size),
        "o": (c.hidden_size, c.q_size),
        "ffn_norm": (c.hidden_size,),
        "gate": (c.ffn_size, c.hidden_size),
        "up": (c.ffn_size, c.hidden_size),
        "down": (c.hidden_size, c.ffn_size),
    }
    if c.qkv_bias:
        shapes |= {"q_bias": (c.q_size,), "k_bias": (c.kv_size,), "v_bias": (c.kv_size,)}
    if c.qk_norm:
        shapes |= {"q_norm": (c.head_dim,), "k_norm": (c.head_dim,)}
    return shapes
