"""Shapes against published parameter counts, and as which models work is priced."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from hetspec.hardware.config_shape import shape_of_config
from hetspec.hardware.cost_as import PricedModel, RealShapes, own_cost, parse_cost_as
from hetspec.hardware.datatypes import Datatype
from hetspec.hardware.shapes import SHAPES, shape_of
from hetspec.model.config import ModelConfig

# As the publications or the checkpoints' own headers give them.
PUBLISHED = {
    "opt-1.3b": 1_315_758_080,
    "opt-6.7b": 6_658_473_984,
    "llama2-7b": 6_738_415_616,
    "llama2-13b": 13_015_864_320,
    "palm-8b": 8_630_000_000,
    "palm-62b": 62_500_000_000,
    "llama3.2-1b": 1_235_814_400,
    "llama3.2-3b": 3_212_749_824,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-7b": 7_615_616_512,
}
CONFIG = ModelConfig(
    family="llama",
    name="tiny",
    vocab_size=1000,
    hidden_size=64,
    n_layers=3,
    n_heads=4,
    n_kv_heads=2,
    head_dim=16,
    ffn_size=128,
    max_context=64,
    rope_theta=10000.0,
    rms_eps=1e-5,
)


def test_every_shape_has_been_published_and_says_where() -> None:
    assert SHAPES.keys() == PUBLISHED.keys()
    assert all(shape.source for shape in SHAPES.values())


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_shape_has_the_published_parameters_but_for_norms_and_biases(name: str) -> None:
    assert SHAPES[name].parameters == pytest.approx(PUBLISHED[name], rel=0.005)


LIBRARY: dict[str, transformers.PretrainedConfig] = {
    "llama2-13b": transformers.LlamaConfig(
        hidden_size=5120, intermediate_size=13824, num_hidden_layers=40, num_attention_heads=40,
        tie_word_embeddings=False,
    ),
    "qwen2.5-0.5b": transformers.Qwen2Config(
        vocab_size=151936, hidden_size=896, intermediate_size=4864, num_hidden_layers=24, num_attention_heads=14,
        num_key_value_heads=2, tie_word_embeddings=True,
    ),
    "opt-6.7b": transformers.OPTConfig(hidden_size=4096, ffn_dim=16384, num_hidden_layers=32, num_attention_heads=32),
}  # fmt: skip


@pytest.mark.parametrize("name", LIBRARY)
def test_a_config_as_the_reference_library_writes_it_gives_the_shape_of_the_registry(name: str, tmp_path: Path) -> None:
    LIBRARY[name].save_pretrained(tmp_path)
    read, known = shape_of_config(tmp_path / "config.json"), SHAPES[name]
    fields = ("n_layers", "hidden", "ffn", "heads", "kv_heads", "head_dim", "gated", "tied")
    assert {f: getattr(read, f) for f in fields} == {f: getattr(known, f) for f in fields}
    assert read.parameters == pytest.approx(known.parameters, rel=1e-3)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"hidden_size": None}, r"lacks hidden_size \(or n_embd, n_embed, d_model\)$"),
        ({"vocab_size": None}, "lacks vocab_size$"),
        ({"num_hidden_layers": 0}, r"num_hidden_layers = 0, must be an integer in \[1, 1024\]"),
        ({"num_hidden_layers": 10**9}, r"num_hidden_layers = 1000000000, must be an integer in \[1, 1024\]"),
        ({"vocab_size": True}, "vocab_size = True, must be an integer in"),
        (
            {"num_attention_heads": 3, "num_key_value_heads": 1},
            "num_attention_heads = 3, must divide hidden_size = 896",
        ),
        ({"num_key_value_heads": 5}, "num_key_value_heads = 5, must divide num_attention_heads = 14"),
        ({"num_key_value_heads": 28}, "num_key_value_heads = 28, must divide num_attention_heads = 14"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings = 'yes', must be true or false"),
        ({"n_embd": 64}, "hidden_size = 896 and n_embd = 64, must be the same"),
        ({"word_embed_proj_dim": 512}, "word_embed_proj_dim = 512, must be 896"),
        ({"is_encoder_decoder": True}, "is_encoder_decoder = true: only decoders are priced"),
        ({"num_experts": "8"}, "num_experts = '8': mixtures of experts are not priced"),
        ({"num_local_experts": 8}, "num_local_experts = 8: mixtures of experts are not priced"),
    ],
)
def test_a_config_that_cannot_be_priced_is_refused_by_path_and_field(
    change: dict[str, Any], told: str, tmp_path: Path
) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**LIBRARY["qwen2.5-0.5b"].to_dict(), **change}), encoding="utf-8")
    with pytest.raises(ValueError, match=f"config.json: {told}"):
        shape_of_config(path)


SMALL: list[transformers.PretrainedConfig] = [
    transformers.GPT2Config(n_embd=64, n_head=4, n_layer=2, vocab_size=300),
    transformers.GPT2Config(n_embd=64, n_head=4, n_layer=2, n_inner=96, vocab_size=300),
    transformers.GPTJConfig(n_embd=64, n_head=4, n_layer=2, rotary_dim=8, vocab_size=300),
    transformers.GPTNeoConfig(
        hidden_size=64, num_heads=4, num_layers=2, attention_types=[[["global"], 2]], vocab_size=300
    ),
    transformers.GPTBigCodeConfig(n_embd=64, n_head=4, n_layer=2, vocab_size=300),
    transformers.GPTNeoXConfig(
        hidden_size=64, num_attention_heads=4, num_hidden_layers=2, intermediate_size=96, vocab_size=300
    ),
    transformers.OPTConfig(
        hidden_size=64, word_embed_proj_dim=64, ffn_dim=96, num_attention_heads=4, num_hidden_layers=2, vocab_size=300
    ),
    transformers.BloomConfig(hidden_size=64, n_head=4, n_layer=2, vocab_size=300),
    transformers.MptConfig(d_model=64, n_heads=4, n_layers=2, vocab_size=300),
    transformers.FalconConfig(
        hidden_size=64, num_attention_heads=4, num_hidden_layers=2, ffn_hidden_size=96, vocab_size=300
    ),
    transformers.FalconConfig(
        hidden_size=64, num_attention_heads=4, num_kv_heads=2, new_decoder_architecture=True, num_hidden_layers=2,
        vocab_size=300,
    ),
    transformers.Qwen3Config(
        hidden_size=64, num_attention_heads=4, num_key_value_heads=2, head_dim=32, num_hidden_layers=2,
        intermediate_size=96, vocab_size=300, tie_word_embeddings=True,
    ),
]  # fmt: skip


@pytest.mark.parametrize("config", SMALL, ids=lambda config: config.model_type)
def test_however_a_decoder_spells_its_sizes_its_shape_has_the_librarys_matrices(
    config: transformers.PretrainedConfig, tmp_path: Path
) -> None:
    """All but norms, biases and the positions' embeddings, which a pass reads a row of."""
    config.save_pretrained(tmp_path)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    matrices = {name: one.numel() for name, one in model.named_parameters() if one.ndim == 2}
    positions = sum(size for name, size in matrices.items() if "wpe" in name or "embed_positions" in name)
    assert shape_of_config(tmp_path / "config.json").parameters == sum(matrices.values()) - positions


def test_the_shape_of_the_model_that_runs_is_its_configs() -> None:
    shape = shape_of(CONFIG)
    assert shape.parameters == 3 * (2 * 64 * 16 * 6 + 3 * 64 * 128) + 2 * 1000 * 64


@pytest.mark.parametrize(
    ("datatype", "size"),
    [(Datatype.INT4, 4.5 / 8), (Datatype.INT8, 8.5 / 8), (Datatype.FP16, 2)],
)
def test_a_weight_takes_its_bits_and_its_share_of_a_groups_scale(datatype: Datatype, size: float) -> None:
    assert datatype.bytes_of(10**6 * 32) == 32 * 10**6 * size
    assert datatype.bytes_of(1) >= 1


def test_cost_as_names_a_target_and_maybe_a_draft() -> None:
    both = parse_cost_as("llama2-13b:int8 + llama2-7b:int4")
    assert both.target == PricedModel.whole(SHAPES["llama2-13b"], Datatype.INT8)
    assert both.draft == PricedModel.whole(SHAPES["llama2-7b"], Datatype.INT4)
    assert parse_cost_as("llama2-7b:int4").draft is None


def test_cost_as_takes_any_config(tmp_path: Path) -> None:
    LIBRARY["qwen2.5-0.5b"].save_pretrained(tmp_path)
    for name in (str(tmp_path), str(tmp_path / "config.json")):
        assert parse_cost_as(f"{name}:int8").target.shape.hidden == 896


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("llama2-7b", "'llama2-7b', must be MODEL:DATATYPE with a datatype of int4, int8, fp16"),
        ("llama2-7b:int3", "must be MODEL:DATATYPE"),
        (":int8", "must be MODEL:DATATYPE"),
        ("", "must be MODEL:DATATYPE"),
        ("gpt-5:int8", "model 'gpt-5', must be a config.json or one of opt-1.3b"),
        ("a:int8+b:int8+c:int8", r"must be TARGET:DATATYPE or TARGET:DATATYPE\+DRAFT:DATATYPE"),
        ("nowhere/config.json:int8", "nowhere/config.json: .*No such file"),
    ],
)
def test_a_cost_as_that_names_nothing_is_refused(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        parse_cost_as(text)


REAL = RealShapes(shape_of(CONFIG), shape_of(CONFIG), draft_head_rows=250, draft_reads_features=True)


def test_a_draft_that_reads_features_is_priced_as_layers_of_the_target_with_as_trimmed_a_head() -> None:
    cost_as = parse_cost_as("llama2-7b:int4").for_models(REAL)
    assert cost_as.draft is not None
    assert cost_as.draft.shape == SHAPES["llama2-7b"]
    assert cost_as.draft.datatype is Datatype.INT4
    assert (cost_as.draft.n_layers, cost_as.draft.head_rows) == (3, 32000 // 4)
    assert cost_as.draft.mix_weights == 4096**2


def test_an_independent_draft_must_be_named() -> None:
    real = RealShapes(REAL.target, REAL.draft, 1000)
    with pytest.raises(ValueError, match=r"'llama2-7b:int4' names no draft.*add one, such as llama2-7b:int4\+"):
        parse_cost_as("llama2-7b:int4").for_models(real)
    named = parse_cost_as("llama2-7b:int4+llama3.2-1b:int4")
    assert named.for_models(real) == named


def test_without_a_draft_model_none_is_priced() -> None:
    assert parse_cost_as("llama2-7b:int4").for_models(RealShapes(REAL.target)).draft is None


def test_the_models_that_run_can_be_priced_as_they_are() -> None:
    own = own_cost(REAL, Datatype.INT8)
    assert own.target == PricedModel.whole(REAL.target, Datatype.INT8)
    assert own.draft is not None
    assert (own.draft.n_layers, own.draft.head_rows, own.draft.mix_weights) == (3, 250, 64**2)
