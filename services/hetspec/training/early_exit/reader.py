"""The target reads a text, and trees below any of its tokens: its rows after some layers, and what it chooses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from hetspec.decoding.noise import tree_noise
from hetspec.decoding.tree import TokenTree
from hetspec.decoding.walk import Row, WalkSpec, walk
from hetspec.model.early_exit import Rows
from hetspec.model.forward import PAGE
from hetspec.model.head import Head
from hetspec.model.kv import KVCache
from hetspec.model.transformer import Look, Span, Transformer
from hetspec.training.early_exit.data import NO_CHOICE, SeenTree
from hetspec.training.speculation.answers import Question
from hetspec.training.target import Target

_PASS_ROWS = 256


class Reader:
    """One text at a time."""

    def __init__(
        self, model: Transformer, head: Head, layers: Sequence[int], missing: NDArray[np.intp], end_ids: frozenset[int]
    ) -> None:
        """model: with room for a text and a tree. layers: whose rows are given, by their number. missing: logits that
        stand for no token."""
        self.model = model
        self.end_ids = end_ids
        self._head = head
        self._layers = layers
        self._missing = missing

    @classmethod
    def open(cls, target: Target, layers: Sequence[int], *, threads: int, max_context: int, max_nodes: int) -> Self:
        tokens = max_context + max_nodes + PAGE
        rows = max(_PASS_ROWS, 1 + max_nodes)
        model = Transformer(
            target.pack, threads=threads, max_rows=rows, max_context=max_context, kv_capacity_tokens=tokens
        )
        missing = target.text.vocabulary.missing(target.checkpoint.config.vocab_size)
        return cls(model, Head(target.pack, threads=threads), layers, missing, frozenset(target.text.spec.end_ids))

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
        rows, _ = self.model.run([span], looks={layer: _keep_in(found, layer) for layer in self._layers})
        return rows, found

    def chosen(self, rows: Rows, question: Question, positions: Sequence[int]) -> list[int]:
        """What follows each row, which is chosen for that position."""
        specs = [WalkSpec(TokenTree(), question.sampling, question.noise, position, 1) for position in positions]

        def project(wanted: Sequence[Row]) -> NDArray[np.float32]:
            return self._head.logits(np.stack([rows[place] for place, _ in wanted]))

        return [steps.tokens[0] for steps in walk(specs, project, self._missing)]

    def close(self) -> None:
        self.model.close()
        self._head.close()


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
        first, ends = position + 1, self.reader.end_ids
        chosen = self.reader.chosen(rows, question, [first, *(first + depth for depth in tree.depths())])
        choices = [
            NO_CHOICE if token in ends else choice for token, choice in zip((last, *tree.tokens), chosen, strict=True)
        ]
        return SeenTree(last, looked, choices, tree_noise(tree, question.sampling.temperature, question.noise, first))


def _keep_in(found: dict[int, Rows], layer: int) -> Look:
    def look(rows: Rows) -> None:
        found[layer] = rows.copy()

    return look
