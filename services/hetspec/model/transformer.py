"""The decoder as a whole: token rows of several sessions in, hidden rows out, one pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hetspec.decoding.tree import ROOT, TokenTree
from hetspec.model import forward
from hetspec.model.kv import KVCache, PagePool
from hetspec.model.operators import OperatorClocks
from hetspec.model.plan import Plan
from hetspec.model.residency import LayerWeights, WeightReader, load_segment
from hetspec.model.residency import PassStopped as PassStopped
from hetspec.model.team import Team

Rows = NDArray[np.float32]  # [rows, hidden]

ROWS_BETWEEN_STOPS = 256  # layers * rows between two looks at `should_stop`: some tens of milliseconds


@dataclass(frozen=True, slots=True)
class Span:
    """One session's part of a pass: tokens to commit, then a tree below the last of them.

    held: which nodes of the tree already have their rows in the cache, in the slots they would get; those are not
    computed again.
    """

    cache: KVCache
    append: Sequence[int]
    tree: TokenTree = TokenTree()
    held: int = 0

    @property
    def rows(self) -> int:
        return len(self.append) + len(self.tree) - self.held


class RowTable:
    """The rows of a pass as the native code reads them (`forward`): see its column names."""

    def __init__(self, spans: Sequence[Span]) -> None:
        self.tokens: list[int] = []
        self.kv_len: list[int] = []
        rows: list[tuple[int, ...]] = []
        path: list[int] = []
        pages: list[int] = []
        for span in spans:
            first_page = len(pages)
            pages.extend(span.cache.pages)
            start = span.cache.length
            prefix = start + len(span.append)
            rows.extend((position, position, position + 1, 0, 0, first_page) for position in range(start, prefix))
            paths: list[list[int]] = []  # of each node: the slots from the first level down to its own
            for node, parent in enumerate(span.tree.parents):
                paths.append([*(paths[parent] if parent != ROOT else ()), prefix + node])
            for node, slots in enumerate(paths[span.held :], start=span.held):
                position = prefix + len(slots) - 1
                rows.append((position, prefix + node, prefix, len(path), len(slots), first_page))
                path.extend(slots)
            self.tokens.extend(span.append)
            self.tokens.extend(span.tree.tokens[span.held :])
        self.kv_len = [row[forward.PREFIX] + row[forward.PATH_LEN] for row in rows]
        self.rows = np.array(rows, np.int64).reshape(-1, forward.ROW_COLUMNS)
        self.path = np.array(path, np.int64)
        self.pages = np.array(pages, np.int64)


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

    def run(self, spans: Sequence[Span], should_stop: Callable[[], bool] | None = None) -> tuple[Rows, RowTable]:
        """Hidden rows before the final norm, [rows, hidden], span after span; appended tokens are committed then.

        Raises CacheFullError, PassStopped (the caches' committed parts are as before), ValueError for a token that the
        vocabulary lacks or more than `max_rows` rows or `max_context` positions.
        """
        self._check(spans)
        for span in spans:
            span.cache.reserve(span.cache.length + len(span.append) + len(span.tree))
        table = RowTable(spans)
        rows = len(table.tokens)
        self.plan.x[:rows] = self._embed[table.tokens]
        self.plan.start(rows)
        self._run_layers(table, should_stop)
        for span in spans:
            span.cache.length += len(span.append)
        return self.plan.x[:rows].copy(), table

    def _run_layers(self, table: RowTable, should_stop: Callable[[], bool] | None) -> None:
        entries, addresses, native = self.plan.entries, self.weights.addresses, forward.run_layers
        step = max(1, ROWS_BETWEEN_STOPS // len(table.rows))
        attended = sum(table.kv_len)

        def native_layers(thread: int) -> None:
            native(entries, table.rows, table.path, table.pages, addresses, self.clocks.table, thread)

        with closing(self.weights.stretches(should_stop)) as stretches:
            for first, last in stretches:
                for layer in range(first, last, step):
                    if should_stop is not None and should_stop():
                        raise PassStopped(layer)
                    entries[forward.FIRST], entries[forward.LAST] = layer, min(layer + step, last)
                    self.team.run(native_layers)
                    self.clocks.attended(attended, int(entries[forward.LAST]) - layer)

    def _check(self, spans: Sequence[Span]) -> None:
        rows = sum(span.rows for span in spans)
        if not 1 <= rows <= self.max_rows:
            raise ValueError(f"rows = {rows}, must be in [1, {self.max_rows}]")
        for span in spans:
            end = span.cache.length + len(span.append) + max(span.tree.depths(), default=0)
            if end > self.max_context:
                raise ValueError(f"context of {end} tokens, must be at most {self.max_context}")
            for token in (*span.append, *span.tree.tokens):
                if not 0 <= token < self.config.vocab_size:
                    raise ValueError(f"token = {token}, must be in [0, {self.config.vocab_size})")

    def close(self) -> None:
        self.team.close()
        self.weights.close()
