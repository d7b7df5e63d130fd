"""What small trained parts of a model have in common as they are kept and sent: what they were made for, a config that
is read strictly, weights by name."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from hetspec.model.json_fields import check_constants, check_keys

Weights = dict[str, NDArray[np.float32]]
Shapes = Mapping[str, tuple[int, ...]]


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
class ArtefactConfig:
    """As JSON it begins with `format` and `version`."""

    FORMAT: ClassVar[str]
    VERSION: ClassVar[int] = 1

    target: MadeFor
    draft: MadeFor

    def check_positive(self, *names: str) -> None:
        """Raises ValueError unless these fields are positive integers."""
        for name in names:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} = {value!r:.60}, must be a positive integer")

    def to_json(self) -> str:
        return json.dumps({"format": self.FORMAT, "version": self.VERSION, **asdict(self)}, indent=2) + "\n"

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """Raises ValueError for anything that `to_json` would not have written."""
        mine = {field.name for field in fields(cls)}
        check_keys("config", data, {"format", "version", *mine})
        check_constants(data, {"format": cls.FORMAT, "version": cls.VERSION})
        made: dict[str, MadeFor] = {}
        for key in ("target", "draft"):
            check_keys(key, data[key], {"name", "fingerprint"})
            made[key] = MadeFor(**data[key])
        return cls(**{name: data[name] for name in mine} | made)


def weights_to_bytes(weights: Weights) -> dict[str, bytes]:
    """Little-endian float32."""
    return {name: values.astype("<f4", copy=False).tobytes() for name, values in weights.items()}


def weights_from_bytes(told: Mapping[str, bytes], shapes: Shapes) -> Weights:
    """Raises ValueError where one is missing or of another size."""
    weights: Weights = {}
    for name, shape in shapes.items():
        data = told.get(name, b"")
        if len(data) != 4 * math.prod(shape):
            raise ValueError(f"{name}: {len(data)} bytes, must be float32 {list(shape)}")
        weights[name] = np.frombuffer(data, "<f4").reshape(shape)
    return weights
