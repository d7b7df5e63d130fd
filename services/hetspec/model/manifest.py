"""What the weight store says of a checkpoint before any weight is read."""

from __future__ import annotations

from dataclasses import dataclass

from hetspec.model.config import ModelConfig
from hetspec.text.text_spec import TextSpec
from hetspec.v1 import weight_store_pb2

ROLES = ("target", "draft")


@dataclass(frozen=True, slots=True)
class Manifest:
    """fingerprint: of the checkpoint's contents."""

    role: str
    fingerprint: str
    config: ModelConfig
    text: TextSpec

    def to_pb(self) -> weight_store_pb2.Manifest:
        return weight_store_pb2.Manifest(
            role=self.role,
            name=self.config.name,
            fingerprint=self.fingerprint,
            config_json=self.config.to_json(),
            text=self.text.to_pb(),
        )

    @classmethod
    def from_pb(cls, pb: weight_store_pb2.Manifest) -> Manifest:
        """Raises ValueError for a config that this version does not know."""
        return cls(pb.role, pb.fingerprint, ModelConfig.from_json(pb.config_json), TextSpec.from_pb(pb.text))
