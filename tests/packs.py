"""Packs in memory, of random weights: a reader for units under test that needs no checkpoint and no weight store."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetspec.model.config import ModelConfig
from hetspec.model.cut import NEVER, Cut
from hetspec.model.pack import GROUP, PackLayout

TINY = ModelConfig(
    family="llama",
    name="tiny",
    vocab_size=40,
    hidden_size=32,
    n_layers=3,
    n_heads=2,
    n_kv_heads=1,
    head_dim=16,
    ffn_size=40,
    max_context=160,
    rope_theta=100.0,
    rms_eps=1e-5,
)


class MemoryPack:
    """A WeightReader. The same seed gives the same weights; `mapped` false lets it be read only, not mapped."""

    def __init__(self, precision: str = "int8", *, seed: int = 0, mapped: bool = True, **changes: Any) -> None:
        self.layout = PackLayout.of(replace(TINY, **changes), precision)
        self.data = np.zeros(self.layout.bytes, np.uint8)
        self._mapped = mapped
        rng = np.random.default_rng(seed)
        for name, (offset, size) in self.layout.segments.items():
            for field, values in self.layout.views(name, self.data[offset : offset + size].data).items():
                values[...] = _random(rng, field, values)

    def map(self) -> NDArray[np.uint8] | None:
        return self.data if self._mapped else None

    def read_into(self, offset: int, buffer: memoryview, cut: Cut = NEVER) -> None:
        buffer[:] = self.data[offset : offset + len(buffer)].data


def _random(rng: np.random.Generator, field: str, values: NDArray[Any]) -> NDArray[Any]:
    """Weights that keep a row's size about as it is."""
    if field == "ids":
        return np.sort(rng.choice(TINY.vocab_size, values.shape, replace=False))
    if field.endswith("norm"):
        return rng.uniform(0.5, 1.5, values.shape)
    if values.dtype == np.int8:
        return rng.integers(-127, 128, values.shape)
    if field.endswith("scale"):
        return rng.uniform(0.5, 1.5, values.shape) / (73 * np.sqrt(values.shape[1] * GROUP))
    inputs = values.shape[-2] if field.endswith(".w") else 1
    return rng.normal(0, 1 / np.sqrt(inputs), values.shape)
