"""The same models by transformers: what the float32 path is judged by."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from numpy.typing import NDArray

from hetspec.model.checkpoint import Checkpoint, open_checkpoint

_NAMES = {
    "embed": "model.embed_tokens.weight",
    "final_norm": "model.norm.weight",
    "head": "lm_head.weight",
    "attn_norm": "input_layernorm.weight",
    "ffn_norm": "post_attention_layernorm.weight",
    "q": "self_attn.q_proj.weight",
    "k": "self_attn.k_proj.weight",
    "v": "self_attn.v_proj.weight",
    "o": "self_attn.o_proj.weight",
    "gate": "mlp.gate_proj.weight",
    "up": "mlp.up_proj.weight",
    "down": "mlp.down_proj.weight",
}


def load_directory(path: Path) -> Any:
    return transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()


def load_llama_gguf(path: Path) -> Any:
    """A Llama filled with the file's dequantized tensors."""
    checkpoint = open_checkpoint(path)
    c = checkpoint.config
    config = transformers.LlamaConfig(
        vocab_size=c.vocab_size,
        hidden_size=c.hidden_size,
        intermediate_size=c.ffn_size,
        num_hidden_layers=c.n_layers,
        num_attention_heads=c.n_heads,
        num_key_value_heads=c.n_kv_heads,
        head_dim=c.head_dim,
        max_position_embeddings=c.max_context,
        rope_parameters={"rope_type": "default", "rope_theta": c.rope_theta},
        rms_norm_eps=c.rms_eps,
        tie_word_embeddings=c.tied_head,
    )
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(config)
    model.load_state_dict({_name(name): _tensor(checkpoint, name) for name in _tensors(checkpoint)}, assign=True)
    model.tie_weights()
    model.model.rotary_emb = type(model.model.rotary_emb)(config)  # its tables are no part of the state
    return model.eval()


def logits_after(model: Any, ids: Sequence[int], first: int = 0) -> NDArray[np.float32]:
    """After each token from `first` on, in one pass: [len(ids) - first, vocab_size]."""
    with torch.inference_mode():
        out = model(torch.tensor([list(ids)]), logits_to_keep=len(ids) - first)
    logits: NDArray[np.float32] = out.logits[0].numpy()
    return logits


def _tensors(checkpoint: Checkpoint) -> list[str]:
    members = [name for name in _NAMES if name not in ("embed", "final_norm", "head")]
    layers = [f"layers.{i}.{member}" for i in range(checkpoint.config.n_layers) for member in members]
    return ["embed", *layers, "final_norm", "head"]


def _name(canonical: str) -> str:
    """transformers' name of a tensor."""
    head, _, member = canonical.rpartition(".")
    return f"model.{head}.{_NAMES[member]}" if head else _NAMES[member]


def _tensor(checkpoint: Checkpoint, name: str) -> torch.Tensor:
    return torch.from_numpy(np.array(checkpoint.tensor(name)))
