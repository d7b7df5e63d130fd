"""A Llama layer for chains that begin behind every position of a sequence at once."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional as f

from hetspec.model.config import ModelConfig


@dataclass(slots=True)
class Chain:
    """Keys and values of a layer, [batch, heads, length, head size] a step: of the first step for all positions, of
    later ones for each chain alone."""

    keys: list[Tensor] = field(default_factory=list)
    values: list[Tensor] = field(default_factory=list)


class Layer(nn.Module):
    """Weights carry the checkpoint's names."""

    inv_freq: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        size, ffn = config.hidden_size, config.ffn_size
        self.attn_norm = nn.Parameter(torch.ones(size))
        self.q = nn.Linear(size, config.q_size, bias=False)
        self.k = nn.Linear(size, config.kv_size, bias=False)
        self.v = nn.Linear(size, config.kv_size, bias=False)
        self.o = nn.Linear(config.q_size, size, bias=False)
        self.ffn_norm = nn.Parameter(torch.ones(size))
        self.gate = nn.Linear(size, ffn, bias=False)
        self.up = nn.Linear(size, ffn, bias=False)
        self.down = nn.Linear(ffn, size, bias=False)
        self.register_buffer("inv_freq", torch.from_numpy(config.inv_freq()), persistent=False)

    def forward(self, x: Tensor, chain: Chain, step: int) -> Tensor:
        eps = self.config.rms_eps
        x = x + self.o(self._attend(norm(x, self.attn_norm, eps), chain, step))
        y = norm(x, self.ffn_norm, eps)
        changed: Tensor = x + self.down(f.silu(self.gate(y)) * self.up(y))
        return changed

    def _attend(self, x: Tensor, chain: Chain, step: int) -> Tensor:
        batch, length, _ = x.shape
        heads, kv_heads = self.config.n_heads, self.config.n_kv_heads
        positions = torch.arange(step, step + length)
        query = self._rotated(_heads(self.q(x), heads), positions) / math.sqrt(self.config.head_dim)
        key = self._rotated(_heads(self.k(x), kv_heads), positions)
        chain.keys.append(key.repeat_interleave(heads // kv_heads, 1))
        chain.values.append(_heads(self.v(x), kv_heads).repeat_interleave(heads // kv_heads, 1))
        if step == 0:
            mixed = f.scaled_dot_product_attention(query, chain.keys[0], chain.values[0], is_causal=True, scale=1.0)
        else:
            mixed = _attend_chain(query, chain)
        return mixed.transpose(1, 2).reshape(batch, length, -1)

    def _rotated(self, x: Tensor, positions: Tensor) -> Tensor:
        """Rotary embedding, rotate-half. x: [batch, heads, length, head size]."""
        angle = positions[:, None] * self.inv_freq
        cos, sin = angle.cos(), angle.sin()
        first, second = x.chunk(2, -1)
        return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)


def _attend_chain(query: Tensor, chain: Chain) -> Tensor:
    """To the first step's positions up to the chain's beginning, and to the chain's own."""
    length = query.shape[2]
    later = torch.ones(length, length, dtype=torch.bool).triu(1)
    scores = (query @ chain.keys[0].transpose(-1, -2)).masked_fill(later, -torch.inf)
    own = torch.stack([(query * key).sum(-1) for key in chain.keys[1:]], -1)
    shares = torch.cat((scores, own), -1).softmax(-1)
    mixed = shares[..., :length] @ chain.values[0]
    for at, value in enumerate(chain.values[1:]):
        mixed = mixed + shares[..., length + at, None] * value
    return mixed


def _heads(x: Tensor, heads: int) -> Tensor:
    """[batch, length, heads * size] -> [batch, heads, length, size]."""
    batch, length, width = x.shape
    return x.view(batch, length, heads, width // heads).transpose(1, 2)


def norm(x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    y = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
    return y if weight is None else y * weight
