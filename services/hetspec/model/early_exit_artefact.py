"""An early-exit predictor as it is kept and sent: what it was made for, where it looks, its weights."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetspec.model.early_exit import DRAFT_FEATURES, MATCHES, Predictor
from hetspec.model.json_fields import check_constants, check_keys
from hetspec.v1 import weight_store_pb2

FORMAT, VERSION = "hetspec-early-exit", 1
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
    """See hetspec.model.checkpoint.early_exit_folder."""

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
        check_keys("config", data, {"format", "version", *mine})
        check_constants(data, {"format": FORMAT, "version": VERSION})
        made: dict[str, MadeFor] = {}
        for key in ("target", "draft"):
            check_keys(key, data[key], {"name", "fingerprint"})
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
class EarlyExitArtefact:
    """alone: the weights of the one that has the draft's features alone."""

    config: EarlyExitConfig
    weights: dict[str, NDArray[np.float32]]

    @property
    def alone(self) -> dict[str, NDArray[np.float32]]:
        named = self.weights.items()
        return {name.removeprefix(DRAFT_ALONE): values for name, values in named if name.startswith(DRAFT_ALONE)}

    def predictor(self) -> Predictor:
        return Predictor(self.weights, self.config.rms_eps)

    def to_pb(self) -> weight_store_pb2.EarlyExitPredictor:
        weights = {name: values.astype("<f4", copy=False).tobytes() for name, values in self.weights.items()}
        return weight_store_pb2.EarlyExitPredictor(config_json=self.config.to_json(), weights=weights)

    @classmethod
    def from_pb(cls, pb: weight_store_pb2.EarlyExitPredictor) -> EarlyExitArtefact:
        """Raises ValueError."""
        config = EarlyExitConfig.from_json(json.loads(pb.config_json))
        weights: dict[str, NDArray[np.float32]] = {}
        for name, shape in config.shapes().items():
            data = pb.weights.get(name, b"")
            if len(data) != 4 * math.prod(shape):
                raise ValueError(f"{name}: {len(data)} bytes, must be float32 {list(shape)}")
            weights[name] = np.frombuffer(data, "<f4").reshape(shape)
        return cls(config, weights)
