"""What passes of a model take on this machine, by their rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import accumulate

from hetspec.decoding.tree import ROOT, TokenTree
from hetspec.drafting.costs import CostCurve
from hetspec.model.kv import KVCache
from hetspec.model.transformer import Span, Transformer

# Kernels take four, two and one row at a time, so that small passes do not lie on a line; the last: a tree of 64 nodes.
VERIFY_ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 65)
CONTEXT_TOKENS = 128
_WIDTH = 8  # of a tree
_REPEATS = 5
_ENOUGH_NS = 200_000_000  # of a point: models whose passes are slow are measured once


def measured_curve(rows: Sequence[int], act: Callable[[int], int]) -> CostCurve:
    """The fewest nanoseconds that `act` takes for each of these rows: whatever else runs only adds to them. More rows
    are taken to cost no less.

    The first act of all is not counted: it may have to compile, or to read weights for the first time.
    """
    act(rows[0])
    taken = [[act(count)] for count in rows]
    for _ in range(_REPEATS - 1):
        for times, count in zip(taken, rows, strict=True):
            if sum(times) < _ENOUGH_NS:
                times.append(act(count))
    return CostCurve(tuple(zip(rows, accumulate(map(min, taken), max), strict=True)))


def pass_curve(model: Transformer, rows: Sequence[int] = VERIFY_ROWS) -> CostCurve:
    """Of a token and a tree below it, behind CONTEXT_TOKENS others where so many have room. Leaves no trace."""
    able = sorted({min(count, model.max_rows) for count in rows})
    room = model.max_context - _depth(able[-1]) - 1, model.pool.capacity_tokens - able[-1]
    cache = _cache_of(model, max(0, min(CONTEXT_TOKENS, *room)), able[-1])
    try:
        return measured_curve(able, lambda count: _pass_ns(model, cache, count))
    finally:
        cache.release()


def _cache_of(model: Transformer, tokens: int, further: int) -> KVCache:
    """Of tokens that were never read: what attention finds there does not change what it takes."""
    cache = model.new_cache()
    cache.reserve(tokens + further)
    for page in cache.pages:
        model.pool.page(page)[:] = 0
    cache.length = tokens
    return cache


def _pass_ns(model: Transformer, cache: KVCache, rows: int) -> int:
    span = Span(cache, [0], _tree(rows - 1))
    start_ns = time.perf_counter_ns()
    model.run([span])
    taken_ns = time.perf_counter_ns() - start_ns
    cache.length -= 1
    return taken_ns


def _tree(nodes: int) -> TokenTree:
    """Chains side by side."""
    parents = tuple(node - _WIDTH if node >= _WIDTH else ROOT for node in range(nodes))
    return TokenTree(tuple(node % _WIDTH for node in range(nodes)), parents)


def _depth(rows: int) -> int:
    return -(-(rows - 1) // _WIDTH)
