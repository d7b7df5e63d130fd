"""An acceptance head as it is kept and sent: what it was made for, its weights."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetspec.model.acceptance import AcceptanceHead
from hetspec.model.early_exit_artefact import MadeFor
from hetspec.model.json_fields import check_constants, check_keys
from hetspec.v1 import weight_store_pb2

FORMAT, VERSION = "hetspec-acceptance", 1


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptanceConfig:
    """See hetspec.model.checkpoint.acceptance_folder."""

    target: MadeFor
    draft: MadeFor
    hidden_size: int
    rms_eps: float
    blocks: int
    rejection_weight: float

    def __post_init__(self) -> None:
        for name in ("hidden_size", "blocks"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} = {value!r:.60}, must be a positive integer")
        for name, most in (("rms_eps", 1.0), ("rejection_weight", 1000.0)):
            value = getattr(self, name)
            if not (isinstance(value, float) and 0 < value <= most):
                raise ValueError(f"{name} = {value!r:.60}, must be in (0, {most:g}]")

    def to_json(self) -> str:
        return json.dumps({"format": FORMAT, "version": VERSION, **asdict(self)}, indent=2) + "\n"

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> AcceptanceConfig:
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
        n, h = self.blocks, self.hidden_size
        return {"blocks": (n, h, h), "block_biases": (n, h), "out": (h,), "out_bias": (1,)}


@dataclass(frozen=True, slots=True)
class AcceptanceArtefact:
    config: AcceptanceConfig
    weights: dict[str, NDArray[np.float32]]

    def head(self) -> AcceptanceHead:
        return AcceptanceHead(self.weights, self.config.rms_eps)

    def to_pb(self) -> weight_store_pb2.AcceptanceHead:
        weights = {name: values.astype("<f4", copy=False).tobytes() for name, values in self.weights.items()}
        return weight_store_pb2.AcceptanceHead(config_json=self.config.to_json(), weights=weights)

    @classmethod
    def from_pb(cls, pb: weight_store_pb2.AcceptanceHead) -> AcceptanceArtefact:
        """Raises ValueError."""
        config = AcceptanceConfig.from_json(json.loads(pb.config_json))
        weights: dict[str, NDArray[np.float32]] = {}
        for name, shape in config.shapes().items():
            data = pb.weights.get(name, b"")
            if len(data) != 4 * math.prod(shape):
                raise ValueError(f"{name}: {len(data)} bytes, must be float32 {list(shape)}")
            weights[name] = np.frombuffer(data, "<f4").reshape(shape)
        return cls(config, weights)
