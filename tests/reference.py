"""The reference: transformers' model, filled with a checkpoint's own tensors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from hetspec.model.checkpoint import Checkpoint
from hetspec.model.formats import open_checkpoint

_LAYER = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    **{name: f"self_attn.{name}_proj" for name in ("q", "k", "v", "o")},
    **{name: f"mlp.{name}_proj" for name in ("gate", "up", "down")},
}


def reference_model(path: Path) -> Any:
    """A float32 LlamaForCausalLM of a plain Llama checkpoint (no biases, no q/k norm, no rope scaling)."""
    checkpoint = open_checkpoint(path)
    config = checkpoint.config
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=config.vocab_size,
            hidden_size=config.hidden_size,
            intermediate_size=config.ffn_size,
            num_hidden_layers=config.n_layers,
            num_attention_heads=config.n_heads,
            num_key_value_heads=config.n_kv_heads,
            head_dim=config.head_dim,
            max_position_embeddings=config.max_context,
            rms_norm_eps=config.rms_eps,
            rope_parameters={"rope_type": "default", "rope_theta": config.rope_theta},
            tie_word_embeddings=config.tied_head,
        )
    )
    model.load_state_dict(_state(checkpoint))
    return model.eval()


def _state(checkpoint: Checkpoint) -> dict[str, torch.Tensor]:
    names = {"model.embed_tokens": "embed", "model.norm": "final_norm", "lm_head": "head"}
    for layer in range(checkpoint.config.n_layers):
        names |= {f"model.layers.{layer}.{theirs}": f"layers.{layer}.{ours}" for ours, theirs in _LAYER.items()}
    if checkpoint.config.tied_head:
        names["lm_head"] = "embed"
    return {f"{theirs}.weight": torch.from_numpy(checkpoint.tensor(ours).copy()) for theirs, ours in names.items()}
