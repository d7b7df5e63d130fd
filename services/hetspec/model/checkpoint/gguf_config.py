"""GGUF metadata -> ModelConfig. A key that could change the computation is used or refused, never passed over."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hetspec.model.checkpoint.errors import CheckpointError
from hetspec.model.config import MAX_NAME_CHARS, FactorScaling, LinearScaling, ModelConfig, RopeScaling

ARCHITECTURES = ("llama", "qwen2", "qwen3")
_REQUIRED = object()
# Keys that may stand under the architecture's name only with this value: anything else is another computation.
_ONLY: dict[str, tuple[Any, ...]] = {
    "attention.causal": (True,),
    "attn_logit_softcapping": (0.0,),
    "final_logit_softcapping": (0.0,),
    "logit_scale": (0.0, 1.0),
    "embedding_scale": (0.0, 1.0),
    "residual_scale": (0.0, 1.0),
    "attention.scale": (0.0,),
    "expert_count": (0,),
    "expert_used_count": (0,),
    "pooling_type": (0,),
    "rope.scaling.attn_factor": (0.0, 1.0),
    "tensor_data_layout": ("Meta AI original pth",),
}
_HARMLESS = {"rope.scaling.original_context_length", "rope.scaling.finetuned", "attention.layer_norm_epsilon"}


class Metadata:
    """Typed look-ups that name the file and the key when they fail, and remember which keys were asked for."""

    def __init__(self, path: object, values: Mapping[str, Any]) -> None:
        self._path = path
        self._values = values
        self.asked: set[str] = set()

    def get(self, key: str, kind: type | tuple[type, ...], default: Any = _REQUIRED) -> Any:
        self.asked.add(key)
        value = self._values.get(key, default)
        if value is _REQUIRED:
            raise CheckpointError(f"{self._path}: metadata key {key} is missing")
        if value is not default and (not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool)):
            raise CheckpointError(f"{self._path}: metadata key {key} = {value!r:.60}, is of the wrong type")
        return value

    def strings(self, key: str, default: Any = _REQUIRED) -> list[str]:
        values: list[str] = self.get(key, list, default)
        if values and not all(isinstance(v, str) for v in values):
            raise CheckpointError(f"{self._path}: metadata key {key}: must be a list of strings")
        return values

    def numbers(self, key: str, default: Any = _REQUIRED) -> list[Any]:
        values: list[Any] = self.get(key, list, default)
        if values and not all(isinstance(v, int | float) for v in values):
            raise CheckpointError(f"{self._path}: metadata key {key}: must be a list of numbers")
        return values

    def items(self, prefix: str) -> dict[str, Any]:
        return {key: value for key, value in self._values.items() if key.startswith(prefix)}


def config_from_gguf(
    meta: Metadata,
    path: object,
    fallback_name: str,
    vocab_size: int,
    tensors: set[str],
    factors: tuple[float, ...] | None,
) -> ModelConfig:
    """vocab_size: rows of the embedding. tensors: names in the file. factors: rope_freqs.weight, where there is one."""
    arch = meta.get("general.architecture", str)
    if arch not in ARCHITECTURES:
        raise CheckpointError(f"{path}: architecture {arch!r} is not supported, only {', '.join(ARCHITECTURES)}")
    if (parts := meta.get("split.count", int, 1)) > 1:
        raise CheckpointError(f"{path}: one of {parts} parts; join them first (llama-gguf-split --merge)")
    number = (int, float)
    hidden, heads = meta.get(f"{arch}.embedding_length", int), meta.get(f"{arch}.attention.head_count", int)
    head_dim = meta.get(f"{arch}.attention.key_length", int, hidden // heads if heads else 0)
    _check_head_dim(meta, path, arch, head_dim)
    window = meta.get(f"{arch}.attention.sliding_window", int, 0)
    context = meta.get(f"{arch}.context_length", int)
    try:
        config = ModelConfig(
            family=arch,
            name=(meta.get("general.name", str, "") or fallback_name)[:MAX_NAME_CHARS],
            vocab_size=vocab_size,
            hidden_size=hidden,
            n_layers=meta.get(f"{arch}.block_count", int),
            n_heads=heads,
            n_kv_heads=meta.get(f"{arch}.attention.head_count_kv", int, heads),
            head_dim=head_dim,
            ffn_size=meta.get(f"{arch}.feed_forward_length", int),
            max_context=min(context, window) if window else context,
            rope_theta=float(meta.get(f"{arch}.rope.freq_base", number, 10000.0)),
            rms_eps=_decimal(meta.get(f"{arch}.attention.layer_norm_rms_epsilon", number)),
            rope_scaling=_scaling(meta, path, arch, factors),
            qkv_bias="blk.0.attn_q.bias" in tensors,
            qk_norm=arch == "qwen3",
            tied_head="output.weight" not in tensors,
        )
    except ValueError as error:
        raise CheckpointError(f"{path}: {error}") from error
    _refuse_unknown(meta, path, arch)
    return config


def _check_head_dim(meta: Metadata, path: object, arch: str, head_dim: int) -> None:
    for key in ("attention.value_length", "rope.dimension_count"):
        value = meta.get(f"{arch}.{key}", int, head_dim)
        if value != head_dim:
            raise CheckpointError(f"{path}: {arch}.{key} = {value}, only the head dimension, {head_dim}, is supported")


def _scaling(meta: Metadata, path: object, arch: str, factors: tuple[float, ...] | None) -> RopeScaling | None:
    kind = meta.get(f"{arch}.rope.scaling.type", str, "none")
    factor = float(meta.get(f"{arch}.rope.scaling.factor", (int, float), 0.0))
    factor = factor or float(meta.get(f"{arch}.rope.scale_linear", (int, float), 0.0)) or 1.0
    if kind not in ("none", "linear"):
        raise CheckpointError(f"{path}: rope scaling {kind!r} is not supported, only linear and Llama 3's")
    if factors is not None and any(f != 1.0 for f in factors):
        if factor != 1.0:
            raise CheckpointError(f"{path}: rope scaling by both a factor and rope_freqs.weight is not supported")
        return FactorScaling(factors)
    return LinearScaling(factor) if factor != 1.0 else None


def _decimal(value: float) -> float:
    """The short decimal that the converter rounded to float32: 1e-05, not 9.999999747378752e-06."""
    return float(f"{value:.6g}")


def _refuse_unknown(meta: Metadata, path: object, arch: str) -> None:
    for key, value in meta.items(f"{arch}.").items():
        short = key.removeprefix(f"{arch}.")
        if key in meta.asked or short in _HARMLESS or short == "vocab_size":
            continue
        if short not in _ONLY:
            raise CheckpointError(f"{path}: metadata key {key} is not known")
        if value not in _ONLY[short]:
            raise CheckpointError(f"{path}: {key} = {value!r:.60} is not supported")
