"""ModelConfig, and reading it from Hugging Face's config.json."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import pytest
import transformers
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from hetspec.model.checkpoint import CheckpointError
from hetspec.model.checkpoint.hf_config import config_from_hf
from hetspec.model.config import FactorScaling, LinearScaling, Llama3Scaling, ModelConfig

LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
HF: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 1000,
    "hidden_size": 256,
    "intermediate_size": 640,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "hidden_act": "silu",
}


def hf(**changes: Any) -> ModelConfig:
    return config_from_hf({**HF, **changes}, "tiny")


CONFIG = hf()


@pytest.mark.parametrize(
    "scaling", [None, LinearScaling(2.0), Llama3Scaling(8.0, 1.0, 4.0, 8192), FactorScaling((1.0,) * 31 + (8.0,))]
)
def test_json_gives_back_an_equal_config(scaling: Any) -> None:
    config = dataclasses.replace(CONFIG, rope_scaling=scaling)
    assert ModelConfig.from_json(config.to_json()) == config


@pytest.mark.parametrize("where", ["", "rope_scaling"])
def test_json_with_an_unknown_field_is_refused_by_name(where: str) -> None:
    data = json.loads(hf(rope_scaling={"rope_type": "linear", "factor": 2.0}).to_json())
    (data[where] if where else data)["surprise"] = 1
    with pytest.raises(ValueError, match="surprise"):
        ModelConfig.from_json(json.dumps(data))


@pytest.mark.parametrize("text", ["[]", "{}", "1", "{"])
def test_json_of_something_else_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"config|Expecting"):
        ModelConfig.from_json(text)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("family", "gpt2"),
        ("name", ""),
        ("vocab_size", 0),
        ("n_layers", 1025),
        ("n_kv_heads", 3),
        ("head_dim", 63),
        ("rope_theta", float("nan")),
        ("rms_eps", 0.0),
        ("qkv_bias", 1),
        ("rope_scaling", LinearScaling(0.0)),
        ("rope_scaling", FactorScaling((1.0,))),
    ],
)
def test_a_value_out_of_bounds_is_refused_by_the_name_of_its_field(field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=field):
        dataclasses.replace(CONFIG, **{field: value})


@pytest.mark.parametrize("theta", [10000.0, 100000.0, 500000.0, 1e6])
@pytest.mark.parametrize("head_dim", [16, 64, 80, 128])
@pytest.mark.parametrize("scaling", [{}, {"rope_type": "linear", "factor": 4.0}, {"rope_type": "llama3", **LLAMA3}])
def test_frequencies_are_those_of_transformers_to_a_few_units_in_the_last_place(
    theta: float, head_dim: int, scaling: dict[str, Any]
) -> None:
    rope = {"rope_type": "default", **scaling, "rope_theta": theta}
    reference = LlamaRotaryEmbedding(transformers.LlamaConfig(head_dim=head_dim, rope_parameters=rope)).inv_freq.numpy()
    ours = hf(head_dim=head_dim, rope_parameters=rope, rope_theta=None).inv_freq()
    assert ours.dtype == np.float32
    np.testing.assert_array_max_ulp(ours, reference, maxulp=8)


def test_older_and_newer_ways_to_write_rope_mean_the_same() -> None:
    older = hf(rope_theta=1e6, rope_scaling={"type": "llama3", **LLAMA3})
    newer = hf(rope_theta=None, rope_parameters={"rope_type": "llama3", "rope_theta": 1e6, **LLAMA3})
    assert older == newer
    assert older.rope_theta == 1e6


@pytest.mark.parametrize("family", ["Llama", "Mistral", "Qwen2", "Qwen3"])
def test_keys_that_are_left_out_take_the_defaults_of_transformers(family: str) -> None:
    required = {"architectures": [f"{family}ForCausalLM"], "num_hidden_layers": 2, "num_attention_heads": 32}
    required |= {"vocab_size": 100, "hidden_size": 4096, "intermediate_size": 64}
    ours = config_from_hf(required, "tiny")
    theirs = getattr(transformers, f"{family}Config")(**required)
    assert ours.n_kv_heads == theirs.num_key_value_heads
    assert ours.head_dim == (getattr(theirs, "head_dim", None) or 4096 // 32)
    assert ours.rope_theta == theirs.rope_parameters["rope_theta"]
    assert ours.rms_eps == theirs.rms_norm_eps
    assert ours.tied_head == theirs.tie_word_embeddings
    window = theirs.sliding_window if family != "Llama" else None
    assert ours.max_context == min(theirs.max_position_embeddings, window or theirs.max_position_embeddings)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"architectures": ["MixtralForCausalLM"]}, "MixtralForCausalLM"),
        ({"architectures": None}, "architectures"),
        ({"attention_bias": True}, "attention_bias"),
        ({"mlp_bias": True}, "mlp_bias"),
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
        ({"num_local_experts": 8}, "num_local_experts"),
        ({"final_logit_softcapping": 30.0}, "final_logit_softcapping"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "yarn"),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 4.0}}, "dynamic"),
        ({"rope_scaling": {"rope_type": "linear"}}, "factor"),
        ({"rope_parameters": {"full_attention": {"rope_type": "default"}}}, "differs between layers"),
        ({"hidden_size": "big"}, "hidden_size"),
        ({"vocab_size": None}, "vocab_size"),
    ],
)
def test_what_is_not_supported_is_refused_in_one_line_that_names_it(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(CheckpointError, match=named) as caught:
        hf(**changes)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "context"),
    [
        ({"architectures": ["MistralForCausalLM"], "sliding_window": 512}, 512),
        ({"architectures": ["MistralForCausalLM"], "sliding_window": None}, 2048),
        ({"architectures": ["Qwen2ForCausalLM"], "sliding_window": 512}, 2048),
        ({"architectures": ["Qwen2ForCausalLM"], "sliding_window": 512, "use_sliding_window": True}, 2048),
        (
            {"architectures": ["Qwen2ForCausalLM"], "sliding_window": 512, "use_sliding_window": True}
            | {"max_window_layers": 1},
            512,
        ),
    ],
)
def test_a_sliding_window_that_is_in_use_caps_the_context(changes: dict[str, Any], context: int) -> None:
    assert hf(**changes).max_context == context
