"""Shapes of models: what their cost follows from. Numbers are those of the models' published configurations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hetspec.model.config import ModelConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """A decoder. gated: three matrices in its feed-forward layer, else two. tied: the head is the embedding.
    source: where the numbers are from."""

    name: str
    n_layers: int
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    gated: bool = True
    tied: bool = False
    source: str = ""

    @property
    def matrices(self) -> tuple[int, int, int, int]:
        """Weights of a layer: queries, keys and values; attention's output; the feed-forward layer's first one or two;
        its last. Norms and biases are less than a thousandth."""
        q, kv, ffn = self.heads * self.head_dim, self.kv_heads * self.head_dim, self.hidden * self.ffn
        return self.hidden * (q + 2 * kv), self.hidden * q, ffn * (2 if self.gated else 1), ffn

    @property
    def layer_weights(self) -> int:
        return sum(self.matrices)

    @property
    def head_weights(self) -> int:
        return self.vocab * self.hidden

    @property
    def parameters(self) -> int:
        return self.n_layers * self.layer_weights + self.head_weights * (1 if self.tied else 2)


def _shape(
    name: str, layers: int, hidden: int, ffn: int, heads: tuple[int, int, int], vocab: int, source: str, **kind: bool
) -> ModelShape:
    """heads: of queries, of keys and values, their size."""
    return ModelShape(
        name=name, n_layers=layers, hidden=hidden, ffn=ffn, heads=heads[0], kv_heads=heads[1], head_dim=heads[2],
        vocab=vocab, source=source, **kind,
    )  # fmt: skip


_PALM = "PaLM, arXiv 2204.02311, table 1 and section 2: SwiGLU, multi-query attention, shared embeddings"
_ALL = (
    _shape("opt-1.3b", 24, 2048, 8192, (32, 32, 64), 50272, "facebook/opt-1.3b config.json", gated=False, tied=True),
    _shape("opt-6.7b", 32, 4096, 16384, (32, 32, 128), 50272, "facebook/opt-6.7b config.json", gated=False, tied=True),
    _shape("llama2-7b", 32, 4096, 11008, (32, 32, 128), 32000, "meta-llama/Llama-2-7b-hf config.json"),
    _shape("llama2-13b", 40, 5120, 13824, (40, 40, 128), 32000, "meta-llama/Llama-2-13b-hf config.json"),
    _shape("palm-8b", 32, 4096, 16384, (16, 1, 256), 256000, _PALM, tied=True),
    _shape("palm-62b", 64, 8192, 32768, (32, 1, 256), 256000, _PALM, tied=True),
    _shape("llama3.2-1b", 16, 2048, 8192, (32, 8, 64), 128256, "meta-llama/Llama-3.2-1B config.json", tied=True),
    _shape("llama3.2-3b", 28, 3072, 8192, (24, 8, 128), 128256, "meta-llama/Llama-3.2-3B config.json", tied=True),
    _shape("qwen2.5-0.5b", 24, 896, 4864, (14, 2, 64), 151936, "Qwen/Qwen2.5-0.5B config.json", tied=True),
    _shape("qwen2.5-7b", 28, 3584, 18944, (28, 4, 128), 152064, "Qwen/Qwen2.5-7B config.json"),
)
SHAPES: Mapping[str, ModelShape] = {shape.name: shape for shape in _ALL}


def shape_of(config: ModelConfig) -> ModelShape:
    """Of a model that runs here. A trimmed head is not the shape's: its vocabulary is whole."""
    return ModelShape(
        name=config.name,
        n_layers=config.n_layers,
        hidden=config.hidden_size,
        ffn=config.ffn_size,
        heads=config.n_heads,
        kv_heads=config.n_kv_heads,
        head_dim=config.head_dim,
        vocab=config.vocab_size,
        tied=config.tied_head,
        source="the model that runs",
    )
