"""The target reads a text, and trees below any of its tokens: its rows after some layers, and what it chooses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self

import numpy as np

from hetspec.decoding.noise import tree_noise
from hetspec.decoding.tree import TokenTree
from hetspec.model.early_exit import Rows
from hetspec.model.forward import PAGE
from hetspec.model.kv import KVCache
from hetspec.model.transformer import Span, Transformer
from hetspec.training.early_exit.data import NO_CHOICE, SeenTree
from hetspec.training.speculation.answers import Answerer, Question
from hetspec.training.speculation.looks import keeping
from hetspec.training.target import Target

_PASS_ROWS = 256


class Reader:
    """One text at a time."""

    def __init__(self, model: Transformer, answerer: Answerer, layers: Sequence[int]) -> None:
        """model: with room for a text and a tree. answerer: says what it chooses; it stays open. layers: whose rows are
        given, by their number."""
        self.model = model
        self.answerer = answerer
        self._layers = layers

    @classmethod
    def open(
        cls,
        target: Target,
        answerer: Answerer,
        layers: Sequence[int],
        *,
        threads: int,
        max_context: int,
        max_nodes: int,
    ) -> Self:
        tokens = max_context + max_nodes + PAGE
        rows = max(_PASS_ROWS, 1 + max_nodes)
        model = Transformer(
            target.pack, threads=threads, max_rows=rows, max_context=max_context, kv_capacity_tokens=tokens
        )
        return cls(model, answerer, layers)

    @contextmanager
    def reads(self, tokens: Sequence[int]) -> Iterator[ReadText]:
        cache = self.model.new_cache()
        try:
            stretches = [tokens[at : at + self.model.max_rows] for at in range(0, len(tokens), self.model.max_rows)]
            found = [self.passed(Span(cache, stretch))[1] for stretch in stretches]
            rows = {layer: np.concatenate([one[layer] for one in found]) for layer in self._layers}
            yield ReadText(self, cache, tokens, rows)
        finally:
            cache.release()

    def passed(self, span: Span) -> tuple[Rows, dict[int, Rows]]:
        """Its rows after all layers, and by layer."""
        found: dict[int, Rows] = {}
        rows, _ = self.model.run([span], looks=keeping(found, self._layers))
        return rows, found

    def close(self) -> None:
        self.model.close()


@dataclass(frozen=True, slots=True)
class ReadText:
    """rows: float32 [tokens, hidden], by layer."""

    reader: Reader
    cache: KVCache
    tokens: Sequence[int]
    rows: Mapping[int, Rows]

    def below(self, position: int, tree: TokenTree, question: Question) -> SeenTree:
        """Of a tree below the token at that position. Nothing behind it is known then."""
        self.cache.length = position
        last = self.tokens[position]
        rows, looked = self.reader.passed(Span(self.cache, [last], tree))
        first, ends = position + 1, self.reader.answerer.end_ids
        places = [(question, first + depth) for depth in (0, *tree.depths())]
        chosen = self.reader.answerer.following(list(rows), places)
        choices = [
            NO_CHOICE if token in ends else choice for token, choice in zip((last, *tree.tokens), chosen, strict=True)
        ]
        return SeenTree(last, looked, choices, tree_noise(tree, question.sampling.temperature, question.noise, first))
