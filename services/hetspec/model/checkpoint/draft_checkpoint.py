"""A draft folder as a Checkpoint: a small model made for one target, whose embedding and text it shares.

config.json, every key of it and no other:
    {"format": "hetspec-draft", "version": 1, "target": {"name": ..., "fingerprint": ...}, "shared": ["embed"],
     "model": what ModelConfig.to_json writes}
The fingerprint is the target checkpoint's. Vocabulary and hidden size of "model" are the target's.

model.safetensors, weights in F16, BF16 or F32, linear ones [outputs, inputs]; h is the hidden size:
    embed_mix [h, h]: the layers are given embed_mix @ norm(the target's embedding of the token)
    feature_norm [h], feature_mix [h, h], with "reads_features": and feature_mix @ (norm(feature) * feature_norm)
    layers.{i}.{attn_norm, q, k, v, o, ffn_norm, gate, up, down}: as of any checkpoint, q and k in rotate-half order
    final_norm [h], head [rows, h]: "head_vocab_size" rows, or the whole vocabulary where that is 0
    head_ids U32 [rows], with "head_vocab_size": the token of each row, ascending
norm(x) is x / sqrt(mean(x^2) + rms_eps).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetspec.model.checkpoint.base import Checkpoint, expected_shapes
from hetspec.model.checkpoint.errors import CheckpointError
from hetspec.model.checkpoint.hf_text import read_json
from hetspec.model.checkpoint.safetensors_file import SafetensorsFile
from hetspec.model.config import ModelConfig
from hetspec.model.json_fields import check_constants, check_keys

FORMAT, VERSION, SHARED = "hetspec-draft", 1, ["embed"]
CONFIG_FILE, WEIGHTS_FILE = "config.json", "model.safetensors"
_ROWS_AT_ONCE = 2048  # of the embedding, mixed together: a row's last bit does not depend on which are asked for


@dataclass(frozen=True, slots=True)
class DraftConfig:
    """A draft folder's config.json."""

    target_name: str
    target_fingerprint: str
    model: ModelConfig

    def to_json(self) -> str:
        target = {"name": self.target_name, "fingerprint": self.target_fingerprint}
        model = json.loads(self.model.to_json())
        data = {"format": FORMAT, "version": VERSION, "target": target, "shared": SHARED, "model": model}
        return json.dumps(data, indent=2) + "\n"

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> DraftConfig:
        """Raises ValueError for anything that `to_json` would not have written."""
        check_keys("config", data, {"format", "version", "target", "shared", "model"})
        check_constants(data, {"format": FORMAT, "version": VERSION, "shared": SHARED})
        target = data["target"]
        check_keys("target", target, {"name", "fingerprint"})
        for key, value in target.items():
            if not isinstance(value, str):
                raise ValueError(f"target.{key} = {value!r:.60}, must be a string")
        return cls(target["name"], target["fingerprint"], ModelConfig.from_json(json.dumps(data["model"])))


def is_draft_folder(path: Path) -> bool:
    """Whether it says that it is one; of which version, and whether it is sound, is seen when it is opened."""
    return (path / CONFIG_FILE).is_file() and "format" in read_json(path / CONFIG_FILE)


class DraftCheckpoint(Checkpoint):
    """Its "embed" is what the layers are given of each token: the target's embedding, mixed."""

    def __init__(self, path: Path, target: Checkpoint, cache_dir: Path | None = None) -> None:
        """cache_dir: where the target's fingerprint is remembered. Raises CheckpointError."""
        self.path = path
        self._target = target
        config = _read_config(path / CONFIG_FILE)
        self._check_target(config, target.fingerprint(cache_dir))
        self.config = config.model
        self.text = target.text
        self._file = SafetensorsFile(path / WEIGHTS_FILE)
        self._check_tensors()
        self._mix = self.rows("embed_mix", 0, self.config.hidden_size).T.astype(np.float64)

    def files(self) -> dict[str, Path]:
        """The target's too: the embedding is read from them."""
        shared = {f"target/{label}": file for label, file in self._target.files().items()}
        return {name: self.path / name for name in (CONFIG_FILE, WEIGHTS_FILE)} | shared

    def head_ids(self) -> NDArray[np.uint32]:
        return self._file.ids("head_ids") if self.config.head_vocab_size else super().head_ids()

    def _check_target(self, config: DraftConfig, fingerprint: str) -> None:
        where, target = self.path / CONFIG_FILE, self._target
        if config.target_fingerprint != fingerprint:
            raise CheckpointError(
                f"{where}: made for {config.target_name} with fingerprint {config.target_fingerprint}, "
                f"the target {target.config.name} has {fingerprint}"
            )
        for name in ("vocab_size", "hidden_size"):
            found, wanted = getattr(config.model, name), getattr(target.config, name)
            if found != wanted:
                raise CheckpointError(f"{where}: model.{name} = {found}, must be the target's {wanted}")
        if config.model.tied_head:
            raise CheckpointError(f"{where}: model.tied_head = true, must be false")

    def _check_tensors(self) -> None:
        size = self.config.hidden_size
        shapes = {name: shape for name, shape in expected_shapes(self.config) if name != "embed"}
        shapes["embed_mix"] = (size, size)
        if self.config.head_vocab_size:
            shapes["head_ids"] = (self.config.head_vocab_size,)
        found = self._file.tensors.keys()
        for problem, names in (("is missing", shapes.keys() - found), ("is not known in a draft", found - shapes)):
            if names:
                raise CheckpointError(f"{self._file.path}: tensor {min(names)} {problem}")
        for name, shape in shapes.items():
            self._file.check_shape(name, shape, CONFIG_FILE, ids=name == "head_ids")
        self._check_head_ids()

    def _check_head_ids(self) -> None:
        ids = self.head_ids().astype(np.int64)
        if not (np.diff(ids) > 0).all():
            place = int(np.argmin(np.diff(ids) > 0)) + 1
            problem = f"head_ids[{place}] = {ids[place]} after {ids[place - 1]}, ids must ascend"
            raise CheckpointError(f"{self._file.path}: {problem}")
        if ids[-1] >= self.config.vocab_size:
            place, bound = len(ids) - 1, f"must be in [0, {self.config.vocab_size})"
            raise CheckpointError(f"{self._file.path}: head_ids[{place}] = {ids[-1]}, {bound}")

    def _read(self, name: str, start: int, stop: int) -> NDArray[np.float32]:
        if name != "embed":
            return self._file.rows(name, start, stop)
        first = start // _ROWS_AT_ONCE * _ROWS_AT_ONCE
        blocks = [self._mixed(at) for at in range(first, stop, _ROWS_AT_ONCE)]
        return np.concatenate(blocks)[start - first : stop - first]

    def _mixed(self, start: int) -> NDArray[np.float32]:
        """The embedding from row `start` on, a block of it. Sums are float64, rounded once."""
        rows = self._target.rows("embed", start, min(start + _ROWS_AT_ONCE, self.config.vocab_size)).astype(np.float64)
        rows /= np.sqrt((rows * rows).mean(axis=1, keepdims=True) + self.config.rms_eps)
        return (rows @ self._mix).astype(np.float32)


def _read_config(path: Path) -> DraftConfig:
    try:
        return DraftConfig.from_json(read_json(path))
    except ValueError as error:
        raise CheckpointError(f"{path}: {error}") from error
