"""A Hugging Face directory as a Checkpoint: config.json, safetensors (one file or shards), the tokenizer's files."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hetspec.model.checkpoint.base import Checkpoint, expected_shapes
from hetspec.model.checkpoint.errors import CheckpointError
from hetspec.model.checkpoint.hf_config import config_from_hf
from hetspec.model.checkpoint.hf_text import TEXT_FILES, read_json, text_from_hf
from hetspec.model.checkpoint.safetensors_file import SafetensorsFile

_SINGLE, _INDEX = "model.safetensors", "model.safetensors.index.json"
_HARMLESS = re.compile(r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq")
_TOP = {"embed": "model.embed_tokens.weight", "final_norm": "model.norm.weight", "head": "lm_head.weight"}
_LAYER = {
    "attn_norm": "input_layernorm.weight",
    "q": "self_attn.q_proj.weight",
    "k": "self_attn.k_proj.weight",
    "v": "self_attn.v_proj.weight",
    "o": "self_attn.o_proj.weight",
    "q_bias": "self_attn.q_proj.bias",
    "k_bias": "self_attn.k_proj.bias",
    "v_bias": "self_attn.v_proj.bias",
    "q_norm": "self_attn.q_norm.weight",
    "k_norm": "self_attn.k_norm.weight",
    "ffn_norm": "post_attention_layernorm.weight",
    "gate": "mlp.gate_proj.weight",
    "up": "mlp.up_proj.weight",
    "down": "mlp.down_proj.weight",
}


class HfCheckpoint(Checkpoint):
    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.config = config_from_hf(read_json(path / "config.json"), path.resolve().name)
        except CheckpointError as error:
            where = f"{path / 'config.json'}: "
            raise CheckpointError(where + str(error).removeprefix(where)) from error
        self._shards = _open_shards(path)
        self._where = _locate(self._shards)
        self._check_tensors()
        self.text = text_from_hf(path, self.config.vocab_size)

    def files(self) -> dict[str, Path]:
        names = ["config.json", *TEXT_FILES, *(shard.path.name for shard in self._shards)]
        return {name: self.path / name for name in names if (self.path / name).exists()}

    def _check_tensors(self) -> None:
        left = {name for name in self._where if not _HARMLESS.fullmatch(name)}
        for name, shape in expected_shapes(self.config):
            stored = _stored_name(name)
            if stored not in self._where:
                raise CheckpointError(f"{self.path}: tensor {stored} is missing")
            self._where[stored].check_shape(stored, shape, "the config")
            left.discard(stored)
        if self.config.tied_head and _TOP["head"] in left:
            self._check_tied()
            left.discard(_TOP["head"])
        if left:
            raise CheckpointError(f"{self.path}: tensor {min(left)} is not known in a {self.config.family} model")

    def _check_tied(self) -> None:
        head, embed = (self._where[_TOP[name]].raw(_TOP[name]) for name in ("head", "embed"))
        if not np.array_equal(head, embed):
            raise CheckpointError(
                f"{self.path}: tensor {_TOP['head']} differs from {_TOP['embed']}, but config.json ties them"
            )

    def _read(self, name: str, start: int, stop: int) -> NDArray[np.float32]:
        stored = _stored_name("embed" if name == "head" and self.config.tied_head else name)
        return self._where[stored].rows(stored, start, stop)


def _stored_name(name: str) -> str:
    if name in _TOP:
        return _TOP[name]
    _, layer, member = name.split(".")
    return f"model.layers.{layer}.{_LAYER[member]}"


def _open_shards(path: Path) -> list[SafetensorsFile]:
    if not (path / _INDEX).exists():
        if not (path / _SINGLE).exists():
            raise CheckpointError(f"{path}: neither {_SINGLE} nor {_INDEX} is there")
        return [SafetensorsFile(path / _SINGLE)]
    weight_map = read_json(path / _INDEX).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(f"{path / _INDEX}: weight_map is missing")
    names = set(weight_map.values())
    for name in names:
        if not isinstance(name, str) or Path(name).name != name:
            raise CheckpointError(f"{path / _INDEX}: weight_map names {name!r:.60}, must be a file beside it")
    shards = [SafetensorsFile(path / name) for name in sorted(names)]
    for shard in shards:
        stray = [t for t in shard.tensors if weight_map.get(t) != shard.path.name]
        if stray:
            raise CheckpointError(f"{shard.path}: tensor {min(stray)} is not where {_INDEX} says")
    return shards


def _locate(shards: list[SafetensorsFile]) -> dict[str, SafetensorsFile]:
    return {name: shard for shard in shards for name in shard.tensors}
