"""The shape of a Llama-family model: all that layouts, kernels and sessions need to know of a checkpoint."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetspec.model.json_fields import check_keys

FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
MAX_LAYERS = 1024
MAX_NAME_CHARS = 200


@dataclass(frozen=True, slots=True)
class LinearScaling:
    """All frequencies divided by `factor`."""

    factor: float

    def apply(self, inv_freq: NDArray[np.float32]) -> NDArray[np.float32]:
        return inv_freq / np.float32(self.factor)


@dataclass(frozen=True, slots=True)
class Llama3Scaling:
    """Llama 3.1's: long wavelengths divided by `factor`, short ones kept, those in between blended."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position: int

    def __post_init__(self) -> None:
        if not 0 < self.low_freq_factor < self.high_freq_factor:
            raise ValueError(
                f"rope_scaling: low_freq_factor {self.low_freq_factor} must be positive and below "
                f"high_freq_factor {self.high_freq_factor}"
            )
        _check_positive(self, "original_max_position")

    def apply(self, inv_freq: NDArray[np.float32]) -> NDArray[np.float32]:
        factor, low, high = np.float32(self.factor), np.float32(self.low_freq_factor), np.float32(self.high_freq_factor)
        wavelength = np.float32(2 * math.pi) / inv_freq
        smooth = (np.float32(self.original_max_position) / wavelength - low) / np.float32(
            self.high_freq_factor - self.low_freq_factor
        )
        blended = (1 - smooth) * inv_freq / factor + smooth * inv_freq
        scaled = np.where(wavelength > self.original_max_position / low, inv_freq / factor, blended)
        return np.where(wavelength < self.original_max_position / high, inv_freq, scaled).astype(np.float32)


@dataclass(frozen=True, slots=True)
class FactorScaling:
    """Each frequency divided by its own factor: how GGUF files carry Llama 3.1's scaling."""

    factors: tuple[float, ...]

    def apply(self, inv_freq: NDArray[np.float32]) -> NDArray[np.float32]:
        factors: NDArray[np.float32] = np.array(self.factors, np.float32)
        return inv_freq / factors


RopeScaling = LinearScaling | Llama3Scaling | FactorScaling
_SCALINGS: dict[str, type[RopeScaling]] = {"linear": LinearScaling, "llama3": Llama3Scaling, "factors": FactorScaling}
_SIZES = ("vocab_size", "hidden_size", "n_layers", "n_heads", "n_kv_heads", "head_dim", "ffn_size", "max_context")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """A Llama-family decoder: RMS norms, rotate-half rope, grouped-query attention, SwiGLU.

    max_context: positions within which full attention is exact (a sliding window caps it).
    qkv_bias: biases on the q, k and v projections. qk_norm: RMS norm over head_dim of q and k, before rope.
    tied_head: the head is the embedding.
    head_vocab_size: of a draft model, the tokens that its head knows, a part of the vocabulary (FR-Spec, arXiv
    2502.14856); 0: all of it. reads_features: a draft model that reads at each position, beside the token, the target's
    hidden row of the position before (EAGLE, arXiv 2401.15077).
    """

    family: str
    name: str
    vocab_size: int
    hidden_size: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    ffn_size: int
    max_context: int
    rope_theta: float
    rms_eps: float
    rope_scaling: RopeScaling | None = None
    qkv_bias: bool = False
    qk_norm: bool = False
    tied_head: bool = False
    head_vocab_size: int = 0
    reads_features: bool = False

    def __post_init__(self) -> None:
        if self.family not in FAMILIES:
            raise ValueError(f"family {self.family!r}, must be one of {', '.join(FAMILIES)}")
        if not (isinstance(self.name, str) and 0 < len(self.name) <= MAX_NAME_CHARS):
            raise ValueError(f"name {self.name!r}, must have 1 to {MAX_NAME_CHARS} characters")
        _check_positive(self, *_SIZES)
        if self.n_layers > MAX_LAYERS:
            raise ValueError(f"n_layers = {self.n_layers}, must be at most {MAX_LAYERS}")
        if self.n_heads % self.n_kv_heads:
            raise ValueError(f"n_heads = {self.n_heads}, must be a multiple of n_kv_heads = {self.n_kv_heads}")
        if self.head_dim % 2:
            raise ValueError(f"head_dim = {self.head_dim}, must be even")
        for name in ("rope_theta", "rms_eps"):
            value = getattr(self, name)
            if not (isinstance(value, float) and math.isfinite(value) and value > 0):
                raise ValueError(f"{name} = {value!r}, must be a positive number")
        for name in ("qkv_bias", "qk_norm", "tied_head", "reads_features"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name} = {getattr(self, name)!r}, must be true or false")
        self._check_head()
        self._check_scaling()

    def _check_head(self) -> None:
        size = self.head_vocab_size
        if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size <= self.vocab_size:
            raise ValueError(f"head_vocab_size = {size!r}, must be in [0, vocab_size = {self.vocab_size}]")

    def _check_scaling(self) -> None:
        scaling = self.rope_scaling
        if scaling is None:
            return
        factors = scaling.factors if isinstance(scaling, FactorScaling) else (scaling.factor,)
        if isinstance(scaling, FactorScaling) and len(factors) != self.head_dim // 2:
            raise ValueError(f"rope_scaling has {len(factors)} factors, must be head_dim / 2 = {self.head_dim // 2}")
        for factor in factors:
            if not (isinstance(factor, float) and math.isfinite(factor) and factor > 0):
                raise ValueError(f"rope_scaling: factor {factor!r}, must be a positive number")

    @property
    def q_size(self) -> int:
        return self.n_heads * self.head_dim

    @property
    def kv_size(self) -> int:
        return self.n_kv_heads * self.head_dim

    @property
    def head_rows(self) -> int:
        """Logits that the head gives."""
        return self.head_vocab_size or self.vocab_size

    def inv_freq(self) -> NDArray[np.float32]:
        """float32 [head_dim / 2]: radians a position, scaled; transformers' to a few units in the last place."""
        exponents = np.arange(0, self.head_dim, 2, dtype=np.float32) / np.float32(self.head_dim)
        powers = np.power(np.float64(np.float32(self.rope_theta)), exponents.astype(np.float64)).astype(np.float32)
        plain: NDArray[np.float32] = np.float32(1) / powers
        return plain if self.rope_scaling is None else self.rope_scaling.apply(plain)

    def to_json(self) -> str:
        data = asdict(self)
        for kind, scaling in _SCALINGS.items():
            if isinstance(self.rope_scaling, scaling):
                data["rope_scaling"] = {"kind": kind, **asdict(self.rope_scaling)}
        return json.dumps(data, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> ModelConfig:
        """Raises ValueError for anything that `to_json` would not have written."""
        data = json.loads(text)
        check_keys("config", data, {f.name for f in fields(cls)})
        try:
            return cls(**{**data, "rope_scaling": _scaling_from_json(data["rope_scaling"])})
        except TypeError as error:
            raise ValueError(f"config: {error}") from error


def _scaling_from_json(data: Any) -> RopeScaling | None:
    if data is None:
        return None
    kind = data.get("kind") if isinstance(data, dict) else None
    if kind not in _SCALINGS:
        raise ValueError(f"rope_scaling: kind {kind!r}, must be one of {', '.join(_SCALINGS)}")
    check_keys("rope_scaling", data, {"kind", *(f.name for f in fields(_SCALINGS[kind]))})
    values: dict[str, Any] = {
        key: tuple(value) if key == "factors" else value for key, value in data.items() if key != "kind"
    }
    return _SCALINGS[kind](**values)


def _check_positive(record: object, *names: str) -> None:
    for name in names:
        value = getattr(record, name)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{name} = {value!r}, must be a positive integer")
