"""Hugging Face config.json -> ModelConfig, as transformers reads it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hetspec.model.checkpoint.errors import CheckpointError
from hetspec.model.config import MAX_NAME_CHARS, LinearScaling, Llama3Scaling, ModelConfig, RopeScaling

ARCHITECTURES = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "mistral",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
}
_THETA, _EPS, _MAX_POSITIONS = 10000.0, 1e-6, {"llama": 2048, "mistral": 131072, "qwen2": 32768, "qwen3": 32768}
# Keys that may stand in the file only with one of these values: anything else is another computation.
_ONLY: dict[str, tuple[Any, ...]] = {
    "hidden_act": ("silu",),
    "attention_bias": (False,),
    "mlp_bias": (False,),
    "partial_rotary_factor": (None, 1.0),
    "rope_interleaved": (None, False),
    "quantization_config": (None,),
    "attn_logit_softcapping": (None,),
    "final_logit_softcapping": (None,),
    "num_local_experts": (None, 0),
    "num_experts": (None, 0),
}


def config_from_hf(data: Mapping[str, Any], name: str) -> ModelConfig:
    """`data`: the parsed config.json; `name`: the model's. Raises CheckpointError; the caller adds the path."""
    architectures = data.get("architectures")
    if architectures not in [[known] for known in ARCHITECTURES]:
        raise CheckpointError(f"architectures {architectures!r:.100}, must be one of {', '.join(ARCHITECTURES)}")
    family = ARCHITECTURES[architectures[0]]
    for key, allowed in _ONLY.items():
        if key in data and data[key] not in allowed:
            raise CheckpointError(f"{key} = {data[key]!r:.100} is not supported")
    try:
        return _read(data, family, name[:MAX_NAME_CHARS])
    except (TypeError, ValueError, ArithmeticError) as error:
        raise CheckpointError(str(error)) from error


def _read(data: Mapping[str, Any], family: str, name: str) -> ModelConfig:
    rope = _rope_parameters(data)
    heads, hidden = _integer(data, "num_attention_heads"), _integer(data, "hidden_size")
    positions = _integer(data, "max_position_embeddings", _MAX_POSITIONS[family])
    return ModelConfig(
        family=family,
        name=name,
        vocab_size=_integer(data, "vocab_size"),
        hidden_size=hidden,
        n_layers=_integer(data, "num_hidden_layers"),
        n_heads=heads,
        n_kv_heads=_integer(data, "num_key_value_heads", 8 if family == "mistral" else heads),
        head_dim=_integer(data, "head_dim", 128 if family == "qwen3" else hidden // heads),
        ffn_size=_integer(data, "intermediate_size"),
        max_context=min(positions, _window(data, family) or positions),
        rope_theta=float(rope.get("rope_theta") or _THETA),
        rms_eps=float(data.get("rms_norm_eps", _EPS)),
        rope_scaling=_scaling(rope, positions),
        qkv_bias=family == "qwen2",
        qk_norm=family == "qwen3",
        tied_head=bool(data.get("tie_word_embeddings", False)),
    )


def _integer(data: Mapping[str, Any], key: str, default: int | None = None) -> int:
    value = data.get(key)
    value = default if value is None else value
    if isinstance(value, bool) or not isinstance(value, int):
        raise CheckpointError(f"{key} = {value!r:.60}, must be an integer")
    return value


def _rope_parameters(data: Mapping[str, Any]) -> dict[str, Any]:
    """Either `rope_parameters`, or the older `rope_scaling` beside `rope_theta`."""
    given = data.get("rope_parameters") or data.get("rope_scaling") or {}
    if not isinstance(given, dict) or any(isinstance(value, dict) for value in given.values()):
        raise CheckpointError("rope_parameters: rope that differs between layers is not supported")
    if given.get("partial_rotary_factor", 1.0) != 1.0:
        raise CheckpointError(f"partial_rotary_factor = {given['partial_rotary_factor']!r:.60} is not supported")
    return {"rope_theta": data.get("rope_theta"), **given}


def _scaling(rope: Mapping[str, Any], positions: int) -> RopeScaling | None:
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "default":
        return None
    if kind == "linear":
        return LinearScaling(_number(rope, "factor"))
    if kind == "llama3":
        original = rope.get("original_max_position_embeddings") or positions
        low, high = _number(rope, "low_freq_factor"), _number(rope, "high_freq_factor")
        return Llama3Scaling(_number(rope, "factor"), low, high, original)
    raise CheckpointError(f"rope scaling {kind!r:.60} is not supported, only linear and llama3")


def _number(rope: Mapping[str, Any], key: str) -> float:
    if key not in rope:
        raise CheckpointError(f"rope scaling: {key} is missing")
    return float(rope[key])


def _window(data: Mapping[str, Any], family: str) -> int | None:
    """Positions that every layer attends to in full, where the model limits them."""
    if family == "llama":
        return None
    window = _integer(data, "sliding_window", 4096 if "sliding_window" not in data else 0)
    if family == "mistral":
        return window
    layers = _integer(data, "num_hidden_layers")
    kinds = data.get("layer_types")
    slides = "sliding_attention" in kinds if kinds else layers > _integer(data, "max_window_layers", 28)
    return window if data.get("use_sliding_window", False) and slides else None
