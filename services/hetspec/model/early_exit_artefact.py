"""An early-exit predictor as it is kept and sent: what it was made for, where it looks, its weights."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import ClassVar

from hetspec.model.artefact import ArtefactConfig, Weights, weights_from_bytes, weights_to_bytes
from hetspec.model.early_exit import DRAFT_FEATURES, MATCHES, Predictor
from hetspec.v1 import weight_store_pb2

DRAFT_ALONE = "draft_alone."


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyExitConfig(ArtefactConfig):
    """See hetspec.model.checkpoint.early_exit_folder."""

    FORMAT: ClassVar[str] = "hetspec-early-exit"
    VERSION: ClassVar[int] = 3

    hidden_size: int
    rms_eps: float
    layer: int
    rank: int
    bends: int
    answers: int
    row_features: int
    units: int
    recall: float
    threshold: float | None

    def __post_init__(self) -> None:
        self.check_positive("hidden_size", "layer", "rank", "bends", "answers", "row_features", "units")
        for name in ("rms_eps", "recall"):
            value = getattr(self, name)
            if not (isinstance(value, float) and 0 < value <= 1):
                raise ValueError(f"{name} = {value!r:.60}, must be in (0, 1]")
        if self.threshold is not None and not (isinstance(self.threshold, float) and -math.inf < self.threshold <= 0):
            raise ValueError(f"threshold = {self.threshold!r:.60}, must be the logarithm of a chance, or null")

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Of the weights."""
        h, r, b, a = self.hidden_size, self.rank, self.bends, self.answers
        k, u = self.row_features, self.units
        last = {"first_bias": (u,), "second": (u,), "second_bias": (1,)}
        alone = {"first": (u, DRAFT_FEATURES), **last}
        return {
            "wanted": (r, h), "wanted_bias": (r,), "bend": (b, h), "bend_bias": (b,), "bent": (r, b), "held": (r, h),
            "asked": (a, h), "asked_bias": (a,), "answered": (a, h), "answered_bias": (a,),
            "above": (k, h), "own": (k, h),
            "first": (u, DRAFT_FEATURES + MATCHES + 2 * k), **last,
            **{DRAFT_ALONE + name: shape for name, shape in alone.items()},
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class EarlyExitArtefact:
    """alone: the weights of the one that has the draft's features alone."""

    config: EarlyExitConfig
    weights: Weights

    @property
    def alone(self) -> Weights:
        named = self.weights.items()
        return {name.removeprefix(DRAFT_ALONE): values for name, values in named if name.startswith(DRAFT_ALONE)}

    def predictor(self) -> Predictor:
        return Predictor(self.weights, self.config.rms_eps)

    def to_pb(self) -> weight_store_pb2.EarlyExitPredictor:
        weights = weights_to_bytes(self.weights)
        return weight_store_pb2.EarlyExitPredictor(config_json=self.config.to_json(), weights=weights)

    @classmethod
    def from_pb(cls, pb: weight_store_pb2.EarlyExitPredictor) -> EarlyExitArtefact:
        """Raises ValueError."""
        config = EarlyExitConfig.from_json(json.loads(pb.config_json))
        return cls(config, weights_from_bytes(pb.weights, config.shapes()))
