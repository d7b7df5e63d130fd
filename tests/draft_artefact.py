"""Small random draft folders for a target, and the model that they describe restated in plain numpy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from hetspec.model.checkpoint import Checkpoint, open_checkpoint
from hetspec.model.checkpoint.base import expected_shapes
from hetspec.model.checkpoint.draft_checkpoint import DraftConfig
from hetspec.model.config import ModelConfig
from hetspec.model.rope import rope_tables

Float = NDArray[np.float64]


def draft_config(target: Checkpoint, **changes: Any) -> ModelConfig:
    """One layer of the target's shape, that reads features; `changes` go to it."""
    plain = {"qkv_bias": False, "qk_norm": False, "tied_head": False, "rope_scaling": None, "family": "llama"}
    return replace(target.config, **({"name": "draft", "n_layers": 1, "reads_features": True, **plain} | changes))


def make_draft(directory: Path, target: Path, *, seed: int = 0, **changes: Any) -> Path:
    """A random draft folder for the checkpoint at `target`."""
    checkpoint = open_checkpoint(target)
    config = draft_config(checkpoint, **changes)
    rng = np.random.default_rng(seed)
    size = config.hidden_size
    shapes = {name: shape for name, shape in expected_shapes(config) if name != "embed"} | {"embed_mix": (size, size)}
    tensors: dict[str, NDArray[Any]] = {name: _random(rng, name, shape) for name, shape in shapes.items()}
    if config.head_vocab_size:
        ids = rng.choice(config.vocab_size, config.head_vocab_size, replace=False)
        tensors["head_ids"] = np.sort(ids).astype(np.uint32)
    directory.mkdir(parents=True, exist_ok=True)
    save_file(tensors, directory / "model.safetensors")
    text = DraftConfig(checkpoint.config.name, checkpoint.fingerprint(), config).to_json()
    (directory / "config.json").write_text(text)
    return directory


def _random(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> NDArray[np.float16]:
    if name.endswith("norm"):
        return rng.uniform(0.5, 1.5, shape).astype(np.float16)
    spread = 6 if name == "head" else 1  # so that chances differ
    return (spread * rng.normal(0, 1 / np.sqrt(shape[1]), shape)).astype(np.float16)


class NumpyDraft:
    """A draft folder's model in float64, a whole sequence at a time, without a cache."""

    def __init__(self, folder: Path, target: Checkpoint, config: ModelConfig) -> None:
        self.config = config
        tensors = load_file(folder / "model.safetensors")
        self.head_ids = tensors.pop("head_ids", np.arange(config.vocab_size, dtype=np.uint32)).astype(np.intp)
        self._weights = {name: tensor.astype(np.float64) for name, tensor in tensors.items()}
        self._embedding = target.tensor("embed").astype(np.float64)
        tables = rope_tables(config, config.max_context)
        self._cos, self._sin = (np.concatenate((t, t), axis=1).astype(np.float64) for t in tables)

    def outputs(self, tokens: Sequence[int], features: Mapping[int, Float] | Sequence[Float]) -> list[Float]:
        """Of each token in turn, [hidden]. features: of the first ones; the others read the output before."""
        x: list[Float] = []
        out: list[Float] = []
        for place, token in enumerate(tokens):
            given = features[place] if place < len(features) else out[-1]
            x.append(self._read(token, given))
            out.append(self._layers(np.stack(x))[-1])
        return out

    def logits(self, output: Float) -> Float:
        """Of the tokens `head_ids`."""
        return self._weights["head"] @ self._norm(output, self._weights["final_norm"])

    def _read(self, token: int, feature: Float) -> Float:
        x = self._weights["embed_mix"] @ self._norm(self._embedding[token])
        if self.config.reads_features:
            x = x + self._weights["feature_mix"] @ self._norm(feature, self._weights["feature_norm"])
        return x

    def _norm(self, x: Float, weight: Float | float = 1.0) -> Float:
        normed: Float = x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + self.config.rms_eps) * weight
        return normed

    def _layers(self, x: Float) -> Float:
        """[n, hidden] -> [n, hidden]."""
        for layer in range(self.config.n_layers):
            w = {name: self._weights[f"layers.{layer}.{name}"] for name in _MEMBERS}
            x = x + self._attend(self._norm(x, w["attn_norm"]), w) @ w["o"].T
            y = self._norm(x, w["ffn_norm"])
            gate = y @ w["gate"].T
            x = x + (gate / (1 + np.exp(-gate)) * (y @ w["up"].T)) @ w["down"].T
        return x

    def _attend(self, x: Float, w: Mapping[str, Float]) -> Float:
        c, n = self.config, len(x)
        q = self._rotated((x @ w["q"].T).reshape(n, c.n_heads, c.head_dim))
        k = self._rotated((x @ w["k"].T).reshape(n, c.n_kv_heads, c.head_dim))
        v = (x @ w["v"].T).reshape(n, c.n_kv_heads, c.head_dim)
        group = c.n_heads // c.n_kv_heads
        k, v = k.repeat(group, axis=1), v.repeat(group, axis=1)
        scores = np.einsum("ihd,jhd->hij", q, k) / np.sqrt(c.head_dim)
        scores = np.where(np.tri(n, dtype=bool), scores, -np.inf)
        shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
        shares /= shares.sum(axis=-1, keepdims=True)
        mixed: Float = np.einsum("hij,jhd->ihd", shares, v).reshape(n, -1)
        return mixed

    def _rotated(self, x: Float) -> Float:
        first, second = np.split(x, 2, axis=-1)
        cos, sin = self._cos[: len(x), None], self._sin[: len(x), None]
        return x * cos + np.concatenate((-second, first), axis=-1) * sin


_MEMBERS = ("attn_norm", "q", "k", "v", "o", "ffn_norm", "gate", "up", "down")
