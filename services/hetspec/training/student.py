"""The model that is trained: a few Llama layers on the target's own embedding and, where it is fed, its hidden rows.

A feature-fed student (EAGLE, arXiv 2401.15077) reads at position i the token i and the target's hidden row of token
i - 1, and predicts token i + 1. Behind the last accepted token there are no rows of the target: there it reads its own
output instead, and is trained on that too (EAGLE-3, arXiv 2503.01840).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as f

from hetspec.model.config import ModelConfig


@dataclass(frozen=True, slots=True)
class StudentConfig:
    """shape: the student's own, its vocabulary the trimmed one. fed: reads hidden rows of the target."""

    shape: ModelConfig
    fed: bool


class Student(nn.Module):
    """embedding: the target's, float16 [target vocabulary, hidden]; read, not trained, and no part of the artefact."""

    def __init__(self, config: StudentConfig, embedding: Tensor) -> None:
        super().__init__()
        shape = config.shape
        self.config = config
        self.embedding = embedding
        size = shape.hidden_size
        self.embed_mix = nn.Linear(size, size, bias=False)
        self.feature_norm = nn.Parameter(torch.ones(size)) if config.fed else None
        self.feature_mix = nn.Linear(size, size, bias=False) if config.fed else None
        self.layers = nn.ModuleList([Layer(shape) for _ in range(shape.n_layers)])
        self.final_norm = nn.Parameter(torch.ones(size))
        self.head = nn.Linear(size, shape.vocab_size, bias=False)

    def read(self, tokens: Tensor, features: Tensor | None) -> Tensor:
        """tokens: [...]. features: [..., hidden]. What the layers are given: [..., hidden]."""
        x = self.embed_mix(norm(f.embedding(tokens, self.embedding).float(), None, self.config.shape.rms_eps))
        if features is not None:
            assert self.feature_mix is not None
            x = x + self.feature_mix(norm(features, self.feature_norm, self.config.shape.rms_eps))
        return x

    def logits(self, outputs: Tensor) -> Tensor:
        """outputs: [..., hidden] of the layers. [..., trimmed vocabulary]."""
        return self.head(norm(outputs, self.final_norm, self.config.shape.rms_eps))

    def unroll(self, tokens: Tensor, features: Tensor | None, steps: int) -> list[Tensor]:
        """Outputs [batch, length, hidden] of every draft step, for a chain that begins behind each position.

        tokens: [batch, length]. features: [batch, length, hidden], of position i the target's row of token i - 1.
        Step s of the chain behind position i reads token i + s - 1 and what step s - 1 gave; it attends to the first
        step's positions up to i and to the chain's own. Rows whose chain leaves the sequence hold no sense.
        """
        chains = [Chain() for _ in self.layers]
        outputs: list[Tensor] = []
        for step in range(steps):
            shifted = f.pad(tokens[:, step:], (0, step))
            given = features if step == 0 or not self.config.fed else outputs[-1]
            x = self.read(shifted, given)
            for layer, chain in zip(self.layers, chains, strict=True):
                x = layer(x, chain, step)
            outputs.append(x)
        return outputs


class Chain:
    """Keys and values of a layer: of the first step for all positions, of later ones for each chain alone."""

    def __init__(self) -> None:
        self.keys: list[Tensor] = []  # [batch, heads, length, head size], one a step
        self.values: list[Tensor] = []


class Layer(nn.Module):
    """A Llama layer. Weights carry the checkpoint's names."""

    def __init__(self, shape: ModelConfig) -> None:
        super().__init__()
        self.shape = shape
        size, ffn = shape.hidden_size, shape.ffn_size
        self.attn_norm = nn.Parameter(torch.ones(size))
        self.q = nn.Linear(size, shape.q_size, bias=False)
        self.k = nn.Linear(size, shape.kv_size, bias=False)
        self.v = nn.Linear(size, shape.kv_size, bias=False)
        self.o = nn.Linear(shape.q_size, size, bias=False)
        self.ffn_norm = nn.Parameter(torch.ones(size))
        self.gate = nn.Linear(size, ffn, bias=False)
        self.up = nn.Linear(size, ffn, bias=False)
        self.down = nn.Linear(ffn, size, bias=False)

    def forward(self, x: Tensor, chain: Chain, step: int) -> Tensor:
        eps = self.shape.rms_eps
        x = x + self.o(self._attend(norm(x, self.attn_norm, eps), chain, step))
        y = norm(x, self.ffn_norm, eps)
        return x + self.down(f.silu(self.gate(y)) * self.up(y))

    def _attend(self, x: Tensor, chain: Chain, step: int) -> Tensor:
        batch, length, _ = x.shape
        heads, size = self.shape.n_heads, self.shape.head_dim
        positions = torch.arange(step, step + length)
        query = rotate(self._heads(self.q(x), heads), positions, self.shape.rope_theta) / math.sqrt(size)
        repeat = heads // self.shape.n_kv_heads
        key = rotate(self._heads(self.k(x), self.shape.n_kv_heads), positions, self.shape.rope_theta)
        chain.keys.append(key.repeat_interleave(repeat, 1))
        chain.values.append(self._heads(self.v(x), self.shape.n_kv_heads).repeat_interleave(repeat, 1))
        if step == 0:
            mixed = f.scaled_dot_product_attention(query, chain.keys[0], chain.values[0], is_causal=True, scale=1.0)
        else:
            mixed = self._attend_chain(query, chain, step)
        return self.o_input(mixed, batch, length)

    @staticmethod
    def o_input(mixed: Tensor, batch: int, length: int) -> Tensor:
        return mixed.transpose(1, 2).reshape(batch, length, -1)

    def _attend_chain(self, query: Tensor, chain: Chain, step: int) -> Tensor:
        length = query.shape[2]
        later = torch.ones(length, length, dtype=torch.bool).triu(1)
        scores = (query @ chain.keys[0].transpose(-1, -2)).masked_fill(later, -torch.inf)
        own = torch.stack([(query * key).sum(-1) for key in chain.keys[1 : step + 1]], -1)
        shares = torch.cat((scores, own), -1).softmax(-1)
        mixed = shares[..., :length] @ chain.values[0]
        for at, value in enumerate(chain.values[1 : step + 1]):
            mixed = mixed + shares[..., length + at, None] * value
        return mixed

    @staticmethod
    def _heads(x: Tensor, heads: int) -> Tensor:
        """[batch, length, heads * size] -> [batch, heads, length, size]."""
        batch, length, width = x.shape
        return x.view(batch, length, heads, width // heads).transpose(1, 2)


def norm(x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    y = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
    return y if weight is None else y * weight


def rotate(x: Tensor, positions: Tensor, theta: float) -> Tensor:
    """Rotary embedding, rotate-half. x: [batch, heads, length, size]."""
    size = x.shape[-1]
    frequency = theta ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
    angle = (positions[:, None].double() * frequency).float()
    cos, sin = angle.cos(), angle.sin()
    first, second = x.chunk(2, -1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)
