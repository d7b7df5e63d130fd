"""A folder that holds an early-exit predictor.

config.json, every key of it and no other:
    {"format": "hetspec-early-exit", "version": 1, "target": {"name": ..., "fingerprint": ...},
     "draft": {"name": ..., "fingerprint": ...}, "hidden_size": h, "rms_eps": ..., "layer": ..., "rank": r,
     "row_features": k, "units": u, "recall": ..., "threshold": ...}
Rows are read after `layer` layers. Nodes whose log chance is below `threshold` are dropped; null: none is. `recall` is
the share of accepted nodes that the threshold was chosen to keep. Fingerprints are the checkpoints'.

model.safetensors, F32: the weights of hetspec.model.early_exit.Predictor, and with "draft_alone." before their names
the first, first_bias, second and second_bias of one that has the draft's features alone, to compare with.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetspec.model.checkpoint.errors import CheckpointError
from hetspec.model.checkpoint.hf_text import read_json
from hetspec.model.checkpoint.safetensors_file import SafetensorsFile
from hetspec.model.early_exit import DRAFT_FEATURES, MATCHES, Predictor

FORMAT, VERSION = "hetspec-early-exit", 1
CONFIG_FILE, WEIGHTS_FILE = "config.json", "model.safetensors"
DRAFT_ALONE = "draft_alone."


@dataclass(frozen=True, slots=True)
class MadeFor:
    """A checkpoint: its name and the fingerprint of its files."""

    name: str
    fingerprint: str

    def __post_init__(self) -> None:
        for key in ("name", "fingerprint"):
            if not isinstance(getattr(self, key), str):
                raise ValueError(f"{key} = {getattr(self, key)!r:.60}, must be a string")


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyExitConfig:
    """See the module."""

    target: MadeFor
    draft: MadeFor
    hidden_size: int
    rms_eps: float
    layer: int
    rank: int
    row_features: int
    units: int
    recall: float
    threshold: float | None

    def __post_init__(self) -> None:
        for name in ("hidden_size", "layer", "rank", "row_features", "units"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} = {value!r:.60}, must be a positive integer")
        for name in ("rms_eps", "recall"):
            value = getattr(self, name)
            if not (isinstance(value, float) and 0 < value <= 1):
                raise ValueError(f"{name} = {value!r:.60}, must be in (0, 1]")
        if self.threshold is not None and not (isinstance(self.threshold, float) and -math.inf < self.threshold <= 0):
            raise ValueError(f"threshold = {self.threshold!r:.60}, must be the logarithm of a chance, or null")

    def to_json(self) -> str:
        return json.dumps({"format": FORMAT, "version": VERSION, **asdict(self)}, indent=2) + "\n"

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> EarlyExitConfig:
        """Raises ValueError for anything that `to_json` would not have written."""
        mine = {field.name for field in fields(cls)}
        _expect_keys("config", data, {"format", "version", *mine})
        for key, value in (("format", FORMAT), ("version", VERSION)):
            if data[key] != value or isinstance(data[key], bool):
                raise ValueError(f"{key} = {data[key]!r:.60}, must be {value!r}")
        made: dict[str, MadeFor] = {}
        for key in ("target", "draft"):
            _expect_keys(key, data[key], {"name", "fingerprint"})
            made[key] = MadeFor(**data[key])
        return cls(**{name: data[name] for name in mine} | made)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Of the weights."""
        h, r, k, u = self.hidden_size, self.rank, self.row_features, self.units
        last = {"first_bias": (u,), "second": (u,), "second_bias": (1,)}
        alone = {"first": (u, DRAFT_FEATURES), **last}
        return {
            "wanted": (r, h), "wanted_bias": (r,), "held": (r, h), "above": (k, h), "own": (k, h),
            "first": (u, DRAFT_FEATURES + MATCHES + 2 * k), **last,
            **{DRAFT_ALONE + name: shape for name, shape in alone.items()},
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class EarlyExitFolder:
    """Read. alone: the weights of the one that has the draft's features alone."""

    config: EarlyExitConfig
    weights: dict[str, NDArray[np.float32]]

    @property
    def alone(self) -> dict[str, NDArray[np.float32]]:
        named = self.weights.items()
        return {name.removeprefix(DRAFT_ALONE): values for name, values in named if name.startswith(DRAFT_ALONE)}

    def predictor(self) -> Predictor:
        return Predictor(self.weights, self.config.rms_eps)


def open_early_exit(folder: Path, target_fingerprint: str) -> EarlyExitFolder:
    """Raises CheckpointError for a folder that is not sound, or was made for another target."""
    where = folder / CONFIG_FILE
    try:
        config = EarlyExitConfig.from_json(read_json(where))
    except ValueError as error:
        raise CheckpointError(f"{where}: {error}") from error
    if config.target.fingerprint != target_fingerprint:
        raise CheckpointError(
            f"{where}: made for {config.target.name} with fingerprint {config.target.fingerprint}, "
            f"the target has {target_fingerprint}"
        )
    return EarlyExitFolder(config, _weights(SafetensorsFile(folder / WEIGHTS_FILE), config.shapes()))


def _weights(file: SafetensorsFile, shapes: dict[str, tuple[int, ...]]) -> dict[str, NDArray[np.float32]]:
    found = file.tensors.keys()
    for problem, names in (("is missing", shapes.keys() - found), ("is not known here", found - shapes.keys())):
        if names:
            raise CheckpointError(f"{file.path}: tensor {min(names)} {problem}")
    weights: dict[str, NDArray[np.float32]] = {}
    for name, shape in shapes.items():
        file.check_shape(name, shape, CONFIG_FILE)
        weights[name] = file.rows(name, 0, shape[0])
        if not np.isfinite(weights[name]).all():
            raise CheckpointError(f"{file.path}: tensor {name} holds a value that is no number")
    return weights


def _expect_keys(where: str, data: Any, expected: set[str]) -> None:
    found = set(data) if isinstance(data, dict) else set()
    if found != expected:
        raise ValueError(f"{where}: unknown fields {sorted(found - expected)}, missing {sorted(expected - found)}")
