"""The first layers of a target alone: what lies above those that are looked at is not computed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Self

import numpy as np

from hetspec.decoding.tree import TokenTree
from hetspec.model.early_exit import Rows
from hetspec.model.forward import PAGE
from hetspec.model.kv import KVCache
from hetspec.model.transformer import Look, Span, Transformer
from hetspec.training.target import Target

_PASS_ROWS = 256


class _SeenEnough(Exception):
    """Ends a pass. Its caches' committed parts are as before."""


class FirstLayers:
    """Reads one text at a time, and trees below any of its tokens."""

    def __init__(self, target: Transformer, layers: Sequence[int]) -> None:
        """target: with room for a text and a tree. layers: whose rows are given, by their number."""
        self.target = target
        self._layers = layers

    @classmethod
    def open(cls, target: Target, layers: Sequence[int], *, threads: int, max_context: int, max_nodes: int) -> Self:
        tokens = max_context + max_nodes + PAGE
        rows = max(_PASS_ROWS, 1 + max_nodes)
        model = Transformer(
            target.pack, threads=threads, max_rows=rows, max_context=max_context, kv_capacity_tokens=tokens
        )
        return cls(model, layers)

    def read(self, cache: KVCache, tokens: Sequence[int]) -> dict[int, Rows]:
        """Commits the tokens; float32 [tokens, hidden] by layer."""
        found: list[dict[int, Rows]] = []
        for first in range(0, len(tokens), self.target.max_rows):
            stretch = tokens[first : first + self.target.max_rows]
            found.append(self._pass(Span(cache, stretch)))
            cache.length += len(stretch)
        return {layer: np.concatenate([one[layer] for one in found]) for layer in self._layers}

    def below(self, cache: KVCache, position: int, last: int, tree: TokenTree) -> dict[int, Rows]:
        """Of the token `last` at that position and of a tree below it, [1 + nodes, hidden] by layer. The cache holds
        what was read before `position` and nothing behind it then."""
        cache.length = position
        return self._pass(Span(cache, [last], tree))

    def close(self) -> None:
        self.target.close()

    def _pass(self, span: Span) -> dict[int, Rows]:
        found: dict[int, Rows] = {}
        looks = {layer: self._look(layer, found) for layer in self._layers}
        with suppress(_SeenEnough):
            self.target.run([span], looks=looks)
        return found

    def _look(self, layer: int, found: dict[int, Rows]) -> Look:
        def look(rows: Rows) -> None:
            found[layer] = rows.copy()
            if layer == max(self._layers):
                raise _SeenEnough

        return look
