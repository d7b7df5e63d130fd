"""The shape of a model, out of its Hugging Face config.json. Decoders call the same sizes by different names."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hetspec.hardware.shapes import ModelShape
from hetspec.model.config import MAX_LAYERS

Config = Mapping[str, Any]

_HIDDEN = ("hidden_size", "n_embd", "n_embed", "d_model")
_LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
_HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads")
_KV_HEADS = ("num_key_value_heads", "num_kv_heads", "n_head_kv")
_FFN = ("intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size")
_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts")
_MOST = 1 << 24  # of any size

_TWO_MATRICES = {
    "opt", "gpt2", "gpt_neo", "gptj", "gpt_bigcode", "codegen", "gpt_neox", "falcon", "phi", "bloom", "mpt",
    "starcoder2",
}  # fmt: skip
_FOUR_TIMES = {"gpt2", "gpt_neo", "gptj", "gpt_bigcode", "codegen", "falcon", "bloom", "mpt"}  # where no size is given
_ONE_KV_HEAD = {"falcon", "gpt_bigcode"}  # unless the file says otherwise, as below
_TIED = {
    "opt", "gpt2", "gpt_neo", "gpt_bigcode", "gemma", "gemma2", "gemma3_text", "falcon", "bloom", "mpt", "starcoder2",
}  # fmt: skip


def shape_of_config(path: Path) -> ModelShape:
    """Raises ValueError: path, field and what is wrong."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(data, dict):
            raise ValueError("must be an object")
        return _read(data, path)
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{path}: {error}") from error


def _read(data: Config, path: Path) -> ModelShape:
    kind = data.get("model_type")
    kind = kind if isinstance(kind, str) else ""
    _check_kind(data)
    hidden, heads = _size(data, _HIDDEN), _size(data, _HEADS)
    _check_embedding(data, hidden)
    return ModelShape(
        name=path.parent.name or path.stem,
        n_layers=_size(data, _LAYERS, most=MAX_LAYERS),
        hidden=hidden,
        ffn=_size(data, _FFN, 4 * hidden if kind in _FOUR_TIMES else None),
        heads=heads,
        kv_heads=_kv_heads(data, kind, heads),
        head_dim=_head_dim(data, hidden, heads),
        vocab=_size(data, ("vocab_size",)),
        gated=kind not in _TWO_MATRICES and not _given(data, ("ffn_dim", "n_inner")),
        tied=_flag(data, "tie_word_embeddings", kind in _TIED),
        source=str(path),
    )


def _check_kind(data: Config) -> None:
    if _flag(data, "is_encoder_decoder", False):
        raise ValueError("is_encoder_decoder = true: only decoders are priced")
    for name, value in _given(data, _EXPERTS).items():
        if value not in (0, 1):
            raise ValueError(f"{name} = {value!r}: mixtures of experts are not priced")


def _check_embedding(data: Config, hidden: int) -> None:
    for name, value in _given(data, ("word_embed_proj_dim",)).items():
        if value != hidden:
            raise ValueError(f"{name} = {value!r}, must be {hidden}, as wide as the layers: no other head is priced")


def _head_dim(data: Config, hidden: int, heads: int) -> int:
    if not _given(data, ("head_dim",)) and hidden % heads:
        raise ValueError(f"{_name(data, _HEADS)} = {heads}, must divide {_name(data, _HIDDEN)} = {hidden}")
    return _size(data, ("head_dim",), hidden // heads)


def _kv_heads(data: Config, kind: str, heads: int) -> int:
    """`multi_query` is one for all; but Falcon's newer architecture counts them in spite of it."""
    one = _flag(data, "multi_query", kind in _ONE_KV_HEAD)
    if one and not _flag(data, "new_decoder_architecture", False):
        return 1
    kv_heads = _size(data, _KV_HEADS, heads)
    if heads % kv_heads:
        raise ValueError(f"{_name(data, _KV_HEADS)} = {kv_heads}, must divide {_name(data, _HEADS)} = {heads}")
    return kv_heads


def _size(data: Config, names: tuple[str, ...], default: int | None = None, most: int = _MOST) -> int:
    """Of the name that is given; of several, all must say the same."""
    given = _given(data, names)
    for name, value in given.items():
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            raise ValueError(f"{name} = {value!r:.60}, must be an integer in [1, {most}]")
    if len(set(given.values())) > 1:
        raise ValueError(f"{' and '.join(f'{name} = {value}' for name, value in given.items())}, must be the same")
    if not given and default is None:
        others = f" (or {', '.join(names[1:])})" if names[1:] else ""
        raise ValueError(f"lacks {names[0]}{others}")
    return int(next(iter(given.values()), default or 0))


def _flag(data: Config, name: str, default: bool) -> bool:
    value = data.get(name, default)
    if not isinstance(value, bool):
        raise ValueError(f"{name} = {value!r:.60}, must be true or false")
    return value


def _name(data: Config, names: tuple[str, ...]) -> str:
    return next(iter(_given(data, names)), names[0])


def _given(data: Config, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: data[name] for name in names if data.get(name) is not None}
