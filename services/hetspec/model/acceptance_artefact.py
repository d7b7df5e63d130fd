"""An acceptance head as it is kept and sent: what it was made for, its weights."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import ClassVar

from hetspec.model.acceptance import AcceptanceHead
from hetspec.model.artefact import ArtefactConfig, Weights, weights_from_bytes, weights_to_bytes
from hetspec.v1 import weight_store_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptanceConfig(ArtefactConfig):
    """See hetspec.model.checkpoint.acceptance_folder."""

    FORMAT: ClassVar[str] = "hetspec-acceptance"

    hidden_size: int
    rms_eps: float
    blocks: int
    rejection_weight: float

    def __post_init__(self) -> None:
        self.check_positive("hidden_size", "blocks")
        for name, most in (("rms_eps", 1.0), ("rejection_weight", 1000.0)):
            value = getattr(self, name)
            if not (isinstance(value, float) and 0 < value <= most):
                raise ValueError(f"{name} = {value!r:.60}, must be in (0, {most:g}]")

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Of the weights."""
        n, h = self.blocks, self.hidden_size
        return {"blocks": (n, h, h), "block_biases": (n, h), "out": (h,), "out_bias": (1,), "own": (1,)}


@dataclass(frozen=True, slots=True)
class AcceptanceArtefact:
    config: AcceptanceConfig
    weights: Weights

    def head(self) -> AcceptanceHead:
        return AcceptanceHead(self.weights, self.config.rms_eps)

    def to_pb(self) -> weight_store_pb2.AcceptanceHead:
        weights = weights_to_bytes(self.weights)
        return weight_store_pb2.AcceptanceHead(config_json=self.config.to_json(), weights=weights)

    @classmethod
    def from_pb(cls, pb: weight_store_pb2.AcceptanceHead) -> AcceptanceArtefact:
        """Raises ValueError."""
        config = AcceptanceConfig.from_json(json.loads(pb.config_json))
        return cls(config, weights_from_bytes(pb.weights, config.shapes()))
