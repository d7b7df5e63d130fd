"""The model that is trained: a few Llama layers on the target's own embedding and, where it is fed, its hidden rows.

A feature-fed student (EAGLE, arXiv 2401.15077) reads at position i the token i and the target's hidden row of token
i - 1, and predicts token i + 1. Behind the last accepted token there are no rows of the target: there it reads its own
output instead, and is trained on that too (EAGLE-3, arXiv 2503.01840).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as f

from hetspec.model.config import ModelConfig
from hetspec.training.draft.student_layer import Chain, Layer, norm


class Student(nn.Module):
    """config: the draft's own. embedding: the target's, [vocab, hidden]; read, not trained, no part of the artefact.

    Weights carry the artefact's names.
    """

    def __init__(self, config: ModelConfig, embedding: Tensor) -> None:
        super().__init__()
        self.config = config
        self.embedding = embedding
        size = config.hidden_size
        self.embed_mix = nn.Linear(size, size, bias=False)
        self.feature_norm = nn.Parameter(torch.ones(size)) if config.reads_features else None
        self.feature_mix = nn.Linear(size, size, bias=False) if config.reads_features else None
        self.layers = nn.ModuleList([Layer(config) for _ in range(config.n_layers)])
        self.final_norm = nn.Parameter(torch.ones(size))
        self.head = nn.Linear(size, config.head_vocab_size or config.vocab_size, bias=False)

    def read(self, tokens: Tensor, features: Tensor | None) -> Tensor:
        """tokens: [...]. features: [..., hidden]. What the layers are given: [..., hidden]."""
        eps = self.config.rms_eps
        x: Tensor = self.embed_mix(norm(f.embedding(tokens, self.embedding), None, eps))
        if self.feature_mix is not None:
            assert features is not None
            x = x + self.feature_mix(norm(features, self.feature_norm, eps))
        return x

    def normed(self, outputs: Tensor) -> Tensor:
        """What the head reads of the layers' outputs."""
        return norm(outputs, self.final_norm, self.config.rms_eps)

    def logits(self, outputs: Tensor) -> Tensor:
        """outputs: [..., hidden] of the layers. [..., tokens of the head]."""
        logits: Tensor = self.head(self.normed(outputs))
        return logits

    def unroll(self, tokens: Tensor, features: Tensor | None, steps: int) -> list[Tensor]:
        """Outputs [batch, length, hidden] of every draft step, for a chain that begins behind each position.

        tokens: [batch, length]. features: [batch, length, hidden], of position i the target's row of token i - 1.
        Step s of the chain behind position i reads token i + s and what step s - 1 gave; it attends to the first
        step's positions up to i and to the chain's own. Rows whose chain leaves the sequence hold no sense.
        """
        chains = [Chain() for _ in self.layers]
        outputs: list[Tensor] = []
        for step in range(steps):
            x = self.read(f.pad(tokens[:, step:], (0, step)), outputs[-1] if step else features)
            for layer, chain in zip(self.layers, chains, strict=True):
                x = layer(x, chain, step)
            outputs.append(x)
        return outputs
