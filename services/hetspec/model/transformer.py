"""The decoder as a whole: token rows of several sessions in, hidden rows out, one pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hetspec.decoding.tree import TokenTree
from hetspec.model import forward
from hetspec.model.kv import KVCache, PagePool
from hetspec.model.operators import OperatorClocks
from hetspec.model.plan import Plan
from hetspec.model.residency import LayerWeights, WeightReader, load_segment
from hetspec.model.residency import PassStopped as PassStopped
from hetspec.model.team import Team

Rows = NDArray[np.float32]  # [rows, hidden]

Look = Callable[[Rows], NDArray[np.bool_] | None]
"""Is shown a pass's rows as they are after some layers; the array is the pass's own, and good until it goes on. Returns
which of them go on, None for all: what the others leave in the cache must not be committed, and no row that goes on may
attend to it."""

ROWS_BETWEEN_STOPS = 256  # layers * rows between two looks at `should_stop`: some tens of milliseconds


@dataclass(frozen=True, slots=True)
class Span:
    """One session's part of a pass: tokens to commit, then a tree below the last of them.

    held: which nodes of the tree already have their rows in the cache, in the slots they would get; those are not
    computed again. added: float32 [rows, hidden], what the layers are given besides each row's embedding.
    """

    cache: KVCache
    append: Sequence[int]
    tree: TokenTree = TokenTree()
    held: int = 0
    added: Rows | None = None

    @property
    def rows(self) -> int:
        return len(self.append) + len(self.tree) - self.held


class RowTable:
    """The rows of a pass as the native code reads them (`forward`): see its column names.

    left: int64, which of the rows that the pass began with still go through it. tokens, kv_len: of all it began with.
    """

    def __init__(self, spans: Sequence[Span]) -> None:
        self.tokens: list[int] = []
        self.kv_len: list[int] = []
        self.by_layer: list[int] = []  # rows that entered each layer so far
        rows: list[tuple[int, ...]] = []
        path: list[int] = []
        pages: list[int] = []
        for span in spans:
            first_page = len(pages)
            pages.extend(span.cache.pages)
            start = span.cache.length
            prefix = start + len(span.append)
            rows.extend((position, position, position + 1, 0, 0, first_page) for position in range(start, prefix))
            for node in range(span.held, len(span.tree)):
                slots = [prefix + above for above in span.tree.path(node)]
                position = prefix + len(slots) - 1
                rows.append((position, prefix + node, prefix, len(path), len(slots), first_page))
                path.extend(slots)
            self.tokens.extend(span.append)
            self.tokens.extend(span.tree.tokens[span.held :])
        self.kv_len = [row[forward.PREFIX] + row[forward.PATH_LEN] for row in rows]
        self.rows = np.array(rows, np.int64).reshape(-1, forward.ROW_COLUMNS)
        self.path = np.array(path, np.int64)
        self.pages = np.array(pages, np.int64)
        self.left = np.arange(len(rows))

    @property
    def attended(self) -> int:
        """Positions that the rows left attend to, all told."""
        return int(self.rows[:, [forward.PREFIX, forward.PATH_LEN]].sum())

    def keep(self, going_on: NDArray[np.bool_]) -> None:
        """Of the rows left."""
        self.rows, self.left = np.ascontiguousarray(self.rows[going_on]), self.left[going_on]


class Transformer:
    """Weights, scratch and threads. One pass at a time; sessions' caches come from `pool`."""

    def __init__(
        self,
        reader: WeightReader,
        *,
        threads: int,
        max_rows: int,
        max_context: int,
        kv_capacity_tokens: int,
        budget_bytes: int = 0,
    ) -> None:
        layout = reader.layout
        self.config = layout.config
        self.max_rows, self.max_context = max_rows, min(max_context, layout.config.max_context)
        self.team = Team(threads)
        self.pool = PagePool(self.config, kv_capacity_tokens)
        self.weights = LayerWeights(reader, budget_bytes)
        self._embed = layout.views("embed", load_segment(reader, "embed"))["embed"]
        self.clocks = OperatorClocks(layout, "layers")
        self.plan = Plan(layout, threads, max_rows, self.config.hidden_size)
        self.plan.add_layers(layout, max_rows, self.max_context)

    def new_cache(self) -> KVCache:
        return KVCache(self.pool)

    def run(
        self,
        spans: Sequence[Span],
        should_stop: Callable[[], bool] | None = None,
        looks: Mapping[int, Look] | None = None,
    ) -> tuple[Rows, RowTable]:
        """Hidden rows before the final norm, [rows left, hidden], span after span; appended tokens are committed then.

        looks: by the number of layers, from 1 to n_layers, after which to look. Appended tokens' rows must go on.
        Raises CacheFullError, PassStopped (the caches' committed parts are as before), ValueError for a token that the
        vocabulary lacks or more than `max_rows` rows or `max_context` positions.
        """
        self._check(spans, looks or {})
        for span in spans:
            span.cache.reserve(span.cache.length + len(span.append) + len(span.tree))
        table = RowTable(spans)
        rows = len(table.tokens)
        self._embed_rows(spans, table)
        self.plan.start(rows)
        self._run_layers(table, should_stop, looks or {})
        for span in spans:
            span.cache.length += len(span.append)
        return self.plan.x[: len(table.left)].copy(), table

    def embeddings(self, tokens: Sequence[int]) -> Rows:
        """float32 [tokens, hidden]: what the first layer is given of each."""
        return self._embed[list(tokens)].astype(np.float32)

    def _embed_rows(self, spans: Sequence[Span], table: RowTable) -> None:
        self.plan.x[: len(table.tokens)] = self._embed[table.tokens]
        first = 0
        for span in spans:
            if span.added is not None:
                self.plan.x[first : first + span.rows] += span.added
            first += span.rows

    def _run_layers(self, table: RowTable, should_stop: Callable[[], bool] | None, looks: Mapping[int, Look]) -> None:
        entries, addresses, native = self.plan.entries, self.weights.addresses, forward.run_layers
        step = max(1, ROWS_BETWEEN_STOPS // len(table.rows))

        def native_layers(thread: int) -> None:
            native(entries, table.rows, table.path, table.pages, addresses, self.clocks.table, thread)

        with closing(self.weights.stretches(should_stop)) as stretches:
            for first, last in stretches:
                for layer, end in _calls(first, last, step, looks):
                    if should_stop is not None and should_stop():
                        raise PassStopped(layer)
                    entries[forward.FIRST], entries[forward.LAST] = layer, end
                    self.team.run(native_layers)
                    self.clocks.attended(table.attended, end - layer)
                    table.by_layer += [len(table.left)] * (end - layer)
                    if end in looks:
                        self._look(looks[end], table)

    def _look(self, look: Look, table: RowTable) -> None:
        """Rows that go on close up."""
        x = self.plan.x[: len(table.left)]
        going_on = look(x)
        if going_on is None or going_on.all():
            return
        table.keep(going_on)
        rows = len(table.left)
        x[:rows] = x[going_on]
        self.plan.start(rows)

    def _check(self, spans: Sequence[Span], looks: Mapping[int, Look]) -> None:
        rows = sum(span.rows for span in spans)
        if not 1 <= rows <= self.max_rows:
            raise ValueError(f"rows = {rows}, must be in [1, {self.max_rows}]")
        for layer in looks:
            if not 1 <= layer <= self.config.n_layers:
                raise ValueError(f"looks: layer = {layer}, must be in [1, {self.config.n_layers}]")
        for span in spans:
            end = span.cache.length + len(span.append) + max(span.tree.depths(), default=0)
            if end > self.max_context:
                raise ValueError(f"context of {end} tokens, must be at most {self.max_context}")
            shape = (span.rows, self.config.hidden_size)
            if span.added is not None and span.added.shape != shape:
                raise ValueError(f"added: shape {span.added.shape}, must be {shape}")
            for token in (*span.append, *span.tree.tokens):
                if not 0 <= token < self.config.vocab_size:
                    raise ValueError(f"token = {token}, must be in [0, {self.config.vocab_size})")

    def close(self) -> None:
        self.team.close()
        self.weights.close()


def _calls(first: int, last: int, step: int, looks: Mapping[int, Look]) -> Iterator[tuple[int, int]]:
    """Layers [first, last) in native calls of at most `step` layers, one of which ends where there is a look."""
    while first < last:
        end = min([first + step, last, *(layer for layer in looks if layer > first)])
        yield first, end
        first = end
