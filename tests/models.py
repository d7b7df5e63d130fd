"""Tiny random checkpoints of every supported family, as Hugging Face directories and as GGUF files."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
import transformers
from numpy.typing import NDArray

from tests.vocabularies import Vocabulary, byte_level, sentencepiece

LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


@dataclass(frozen=True)
class Recipe:
    """How to make a family. `arch` is GGUF's; `pre` names the tokenizer, empty for SentencePiece."""

    model: str
    arch: str
    pre: str
    shape: dict[str, Any] = field(default_factory=dict)


_BASE = {
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 512,
    "initializer_range": 0.2,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
}
_TIED, _GQA = {"tie_word_embeddings": True}, {"num_key_value_heads": 2}
FAMILIES = {
    "llama2": Recipe("Llama", "llama", "", {"num_key_value_heads": 4}),
    "llama3": Recipe("Llama", "llama", "llama-bpe", {**_GQA, "rope_parameters": LLAMA3_ROPE}),
    "smollm": Recipe(
        "Llama", "llama", "smollm", {**_TIED, "hidden_size": 96, "num_attention_heads": 3, "num_key_value_heads": 1}
    ),
    "tinyllama": Recipe("Llama", "llama", "", {"num_hidden_layers": 3, "num_key_value_heads": 1}),
    "mistral": Recipe("Mistral", "llama", "", {**_GQA, "head_dim": 32, "sliding_window": 256}),
    "qwen2": Recipe("Qwen2", "qwen2", "qwen2", {**_TIED, **_GQA, "rms_norm_eps": 1e-6}),
    "qwen3": Recipe("Qwen3", "qwen3", "qwen2", {**_TIED, **_GQA, "head_dim": 32, "rms_norm_eps": 1e-6}),
}


def make_checkpoint(
    directory: Path,
    family: str,
    *,
    seed: int = 0,
    gguf: bool = False,
    tensor_type: str = "F32",
    dtype: str = "float32",
    max_shard_size: str = "1GB",
    **overrides: Any,
) -> Path:
    """A random checkpoint of a family of FAMILIES; `overrides` go to its transformers config.

    Returns the Hugging Face directory, or the GGUF file: the same weights for the same seed.
    tensor_type: of the matrices, in GGUF's terms. dtype: of the safetensors.
    """
    recipe = FAMILIES[family]
    vocabulary = byte_level(recipe.pre) if recipe.pre else sentencepiece()
    model = _random_model(recipe, vocabulary, seed, overrides)
    directory.mkdir(parents=True, exist_ok=True)
    if gguf:
        path = directory / f"{family}.gguf"
        write_gguf(path, recipe, model, vocabulary, tensor_type)
        return path
    model.to(getattr(torch, dtype)).save_pretrained(directory, max_shard_size=max_shard_size)
    save_tokenizer(directory, vocabulary)
    return directory


def save_tokenizer(directory: Path, vocabulary: Vocabulary) -> None:
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=vocabulary.tokenizer, chat_template=vocabulary.chat_template, **vocabulary.special
    )
    fast.save_pretrained(directory)


def _random_model(recipe: Recipe, vocabulary: Vocabulary, seed: int, overrides: dict[str, Any]) -> Any:
    """With more rows in the embedding than tokens where Qwen has them, and norms and biases that are not neutral."""
    ids = {
        f"{name.removesuffix('_token')}_token_id": vocabulary.tokens.index(t) for name, t in vocabulary.special.items()
    }
    ids.pop("unk_token_id", None)
    rows = -(-len(vocabulary.tokens) // 32) * 32 if recipe.arch.startswith("qwen") else len(vocabulary.tokens)
    shape = {"vocab_size": rows, **_BASE, **recipe.shape, **ids, **overrides}
    config = getattr(transformers, f"{recipe.model}Config")(**shape)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = getattr(transformers, f"{recipe.model}ForCausalLM")(config).eval()
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if "norm" in name:
                    parameter.uniform_(0.5, 1.5)
                elif name.endswith("bias"):
                    parameter.normal_(std=0.2)
    return model


_GGUF_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def write_gguf(path: Path, recipe: Recipe, model: Any, vocabulary: Vocabulary, tensor_type: str) -> None:
    """As llama.cpp's convert_hf_to_gguf writes it."""
    writer = gguf.GGUFWriter(path, recipe.arch)
    writer.add_name(f"tiny {recipe.arch}")
    _write_shape(writer, model.config)
    _write_vocabulary(writer, vocabulary, model.config.vocab_size)
    if model.config.rope_parameters["rope_type"] == "llama3":
        writer.add_tensor("rope_freqs.weight", llama3_factors(model.config))
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight" and model.config.tie_word_embeddings:
            continue
        values = _permuted(recipe, model.config, name, tensor.float().numpy())
        kind = gguf.GGMLQuantizationType[tensor_type if values.ndim == 2 else "F32"]
        writer.add_tensor(gguf_name(name), gguf.quants.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def gguf_name(name: str) -> str:
    """transformers' name of a tensor -> GGUF's."""
    module, _, kind = name.rpartition(".")
    if not module.startswith("model.layers."):
        return f"{_GGUF_NAMES[module]}.{kind}"
    _, _, layer, member = module.split(".", 3)
    return f"blk.{layer}.{_GGUF_NAMES[member]}.{kind}"


def _write_shape(writer: gguf.GGUFWriter, config: Any) -> None:
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_rope_dimension_count(head_dim)
    if config.rope_parameters["rope_type"] == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(config.rope_parameters["factor"])


def _write_vocabulary(writer: gguf.GGUFWriter, vocabulary: Vocabulary, rows: int) -> None:
    padding = [f"[PAD{i}]" for i in range(len(vocabulary.tokens), rows)]
    writer.add_token_list(vocabulary.tokens + padding)
    writer.add_token_types(vocabulary.token_types + [gguf.TokenType.UNUSED] * len(padding))
    writer.add_chat_template(vocabulary.chat_template)
    for key, value in vocabulary.gguf.items():
        write = {
            "model": writer.add_tokenizer_model,
            "pre": writer.add_tokenizer_pre,
            "merges": writer.add_token_merges,
        }
        write |= {"scores": writer.add_token_scores, "add_bos_token": writer.add_add_bos_token}
        write |= {"bos_token_id": writer.add_bos_token_id, "eos_token_id": writer.add_eos_token_id}
        write["unknown_token_id"] = writer.add_unk_token_id
        write[key](value)


def _permuted(recipe: Recipe, config: Any, name: str, values: NDArray[np.float32]) -> NDArray[np.float32]:
    """LlamaModel.permute of the converter: the two halves of each head interleaved."""
    if recipe.arch != "llama" or not ("q_proj" in name or "k_proj" in name):
        return values
    heads = config.num_attention_heads if "q_proj" in name else config.num_key_value_heads
    halves = values.reshape(heads, 2, values.shape[0] // heads // 2, *values.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(values.shape))


def llama3_factors(config: Any) -> NDArray[np.float32]:
    """LlamaModel.generate_extra_tensors of the converter."""
    rope = config.rope_parameters
    dim = config.hidden_size // config.num_attention_heads
    low = rope["original_max_position_embeddings"] / rope["low_freq_factor"]
    high = rope["original_max_position_embeddings"] / rope["high_freq_factor"]
    factors = []
    for frequency in 1.0 / (rope["rope_theta"] ** (np.arange(0, dim, 2) / dim)):
        wavelength = 2 * np.pi / frequency
        smooth = (rope["original_max_position_embeddings"] / wavelength - rope["low_freq_factor"]) / (
            rope["high_freq_factor"] - rope["low_freq_factor"]
        )
        blended = 1 / ((1 - smooth) / rope["factor"] + smooth)
        factors.append(1.0 if wavelength < high else rope["factor"] if wavelength > low else blended)
    return np.array(factors, dtype=np.float32)
