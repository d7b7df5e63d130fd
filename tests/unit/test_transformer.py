"""The decoder: a row's bits are a function of the tokens before it, however it is computed; failures cost nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from itertools import count
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetspec.decoding.tree import ROOT, TokenTree
from hetspec.model.kv import PAGE, CacheFullError, KVCache
from hetspec.model.transformer import PassStopped, Rows, Span, Transformer
from tests.packs import TINY, MemoryPack
from tests.unit.strategies import trees

CONTEXT = 100
VARIANTS: list[dict[str, Any]] = [
    {"precision": "int8"},
    {"precision": "float32"},
    {"precision": "int8", "n_kv_heads": 2, "head_dim": 48, "qk_norm": True, "qkv_bias": True},
]
BOTH_TEAMS = pytest.mark.parametrize("threads", [1, 2])
ALL = pytest.mark.parametrize("variant", range(len(VARIANTS)))
tokens = st.integers(0, TINY.vocab_size - 1)


@lru_cache
def model_of(variant: int, threads: int = 1, streamed: bool = False) -> Transformer:
    """Shared: a test gives back all the KV it took. streamed: all layers but the first are read in every pass."""
    pack = MemoryPack(**VARIANTS[variant])
    budget = pack.layout.segments["layers.0"].bytes if streamed else 0
    return Transformer(
        pack, threads=threads, max_rows=128, max_context=CONTEXT, kv_capacity_tokens=16 * PAGE, budget_bytes=budget
    )


@pytest.fixture(autouse=True)
def _no_kv_is_left() -> Iterator[None]:
    yield
    for variant, threads in ((v, t) for v in range(len(VARIANTS)) for t in (1, 2)):
        assert model_of(variant, threads).pool.held_tokens == 0


@contextmanager
def released(*caches: KVCache) -> Iterator[tuple[KVCache, ...]]:
    try:
        yield caches
    finally:
        for cache in caches:
            cache.release()


def in_one_pass(variant: int, ids: Sequence[int]) -> Rows:
    """The reference: every token of `ids` appended at once, by one thread, with nothing beside it."""
    with released(model_of(variant).new_cache()) as (cache,):
        return model_of(variant).run([Span(cache, ids)])[0]


def feed(model: Transformer, cache: KVCache, ids: Sequence[int], chunks: Sequence[int]) -> Rows:
    """`ids` in pieces of these sizes, the last one repeated; their rows."""
    rows: list[Rows] = []
    sizes = [*chunks, *(chunks[-1] for _ in ids)]
    first = 0
    while first < len(ids):
        size = sizes.pop(0)
        rows.append(model.run([Span(cache, ids[first : first + size])])[0])
        first += size
    return np.concatenate(rows)


def assert_same(found: Rows, wanted: Rows) -> None:
    assert found.tobytes() == wanted.tobytes()


@ALL
@BOTH_TEAMS
@given(
    ids=st.lists(tokens, min_size=1, max_size=70),
    chunks=st.lists(st.integers(1, 70), min_size=1, max_size=5),
)
def test_chunks_give_the_rows_of_one_pass(variant: int, threads: int, ids: list[int], chunks: list[int]) -> None:
    model = model_of(variant, threads)
    with released(model.new_cache()) as (cache,):
        assert_same(feed(model, cache, ids, chunks), in_one_pass(variant, ids))
        assert cache.length == len(ids)


def check_tree(variant: int, context: Sequence[int], tree: TokenTree, rows: Rows) -> None:
    """Each node's row against one pass over its path."""
    for node in set(range(len(tree))) - set(tree.parents):
        path = tree.path(node)
        wanted = in_one_pass(variant, [*context, *(tree.tokens[n] for n in path)])
        assert_same(rows[path], wanted[len(context) :])


sessions = st.lists(
    st.tuples(st.lists(tokens, max_size=45), st.lists(tokens, min_size=1, max_size=4), trees(tokens=40)),
    min_size=1,
    max_size=3,
)


@ALL
@BOTH_TEAMS
@given(drawn=sessions, data=st.data())
def test_trees_among_strangers_give_the_rows_of_one_pass_and_so_does_what_follows(
    variant: int, threads: int, drawn: list[Any], data: st.DataObject
) -> None:
    model = model_of(variant, threads)
    with released(*(model.new_cache() for _ in drawn)) as caches:
        for cache, (prompt, _, _) in zip(caches, drawn, strict=True):
            if prompt:
                feed(model, cache, prompt, [17])
        spans = [Span(cache, append, tree) for cache, (_, append, tree) in zip(caches, drawn, strict=True)]
        rows, table = model.run(spans)
        first = 0
        histories: list[list[int]] = []
        for span, (prompt, append, tree) in zip(spans, drawn, strict=True):
            context = [*prompt, *append]
            mine, kv_len = rows[first : first + span.rows], table.kv_len[first : first + span.rows]
            assert_same(mine[: len(append)], in_one_pass(variant, context)[len(prompt) :])
            check_tree(variant, context, tree, mine[len(append) :])
            assert kv_len == [*range(len(prompt) + 1, len(context) + 1), *(len(context) + d for d in tree.depths())]
            path = tree.path(data.draw(st.integers(ROOT, len(tree) - 1)))
            span.cache.keep([len(context) + node for node in path])
            histories.append([*context, *(tree.tokens[node] for node in path)])
            first += span.rows
        after, _ = model.run([Span(cache, [5, 6], TokenTree.chain([7])) for cache in caches])
        for i, (cache, history) in enumerate(zip(caches, histories, strict=True)):
            assert_same(after[3 * i : 3 * i + 3], in_one_pass(variant, [*history, 5, 6, 7])[-3:])
            assert cache.length == len(history) + 2


@ALL
@given(tree=trees(tokens=40), cut=st.integers(0, 14), prompt=st.lists(tokens, min_size=1, max_size=40))
def test_a_tree_grown_step_by_step_has_the_rows_of_the_tree_at_once(
    variant: int, tree: TokenTree, cut: int, prompt: list[int]
) -> None:
    model = model_of(variant)
    held = min(cut, len(tree))
    with released(model.new_cache(), model.new_cache()) as (cache, twin):
        whole, _ = model.run([Span(cache, prompt, tree)])
        model.run([Span(twin, prompt, TokenTree(tree.tokens[:held], tree.parents[:held]))])
        if held < len(tree):
            rest, table = model.run([Span(twin, (), tree, held=held)])
            assert_same(rest, whole[len(prompt) + held :])
            assert table.tokens == list(tree.tokens[held:])


@ALL
@given(ids=st.lists(tokens, min_size=2, max_size=70), data=st.data())
def test_a_fork_and_its_parent_go_their_own_ways(variant: int, ids: list[int], data: st.DataObject) -> None:
    model = model_of(variant)
    at = data.draw(st.integers(0, len(ids)))
    with released(model.new_cache()) as (parent,):
        feed(model, parent, ids, [31])
        with released(parent.fork(at)) as (child,):
            spans = [Span(child, [1, 2, 3], TokenTree.chain([4])), Span(parent, [9, 8], TokenTree.chain([7]))]
            rows, _ = model.run(spans)
            assert_same(rows[:4], in_one_pass(variant, [*ids[:at], 1, 2, 3, 4])[-4:])
            assert_same(rows[4:], in_one_pass(variant, [*ids, 9, 8, 7])[-3:])
            parent.release()
            rows, _ = model.run([Span(child, [5])])
            assert_same(rows, in_one_pass(variant, [*ids[:at], 1, 2, 3, 5])[-1:])


@ALL
@BOTH_TEAMS
@pytest.mark.parametrize("held", [0, 1, 2, 3])
def test_streamed_layers_give_the_bits_of_resident_ones(variant: int, threads: int, held: int) -> None:
    pack = MemoryPack(**VARIANTS[variant])
    budget = max(1, held * pack.layout.segments["layers.0"].bytes)
    model = Transformer(
        pack, threads=threads, max_rows=64, max_context=64, kv_capacity_tokens=2 * PAGE, budget_bytes=budget
    )
    assert model.weights.resident == held
    ids = list(range(35))
    assert_same(feed(model, model.new_cache(), ids, [20, 3]), in_one_pass(variant, ids))
    model.close()


@ALL
@BOTH_TEAMS
@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("layers", [(1,), (2,), (1, 2, 3)])
def test_a_look_shows_the_rows_of_a_model_of_fewer_layers_and_changes_nothing(
    variant: int, threads: int, streamed: bool, layers: tuple[int, ...]
) -> None:
    model, ids = model_of(variant, threads, streamed), list(range(30))
    seen: dict[int, Rows] = {}

    def see(layer: int, rows: Rows) -> None:
        seen[layer] = rows.copy()

    with released(model.new_cache()) as (cache,):
        rows, _ = model.run([Span(cache, ids)], looks={layer: partial(see, layer) for layer in layers})
    assert_same(rows, in_one_pass(variant, ids))
    assert tuple(seen) == layers
    for layer, found in seen.items():
        fewer = Transformer(
            MemoryPack(**VARIANTS[variant], n_layers=layer),
            threads=1,
            max_rows=32,
            max_context=64,
            kv_capacity_tokens=PAGE,
        )
        assert_same(found, fewer.run([Span(fewer.new_cache(), ids)])[0])
        fewer.close()


@pytest.mark.parametrize("layer", [0, 4])
def test_a_look_where_no_layer_ends_is_refused(layer: int) -> None:
    model = model_of(0)
    with (
        released(model.new_cache()) as (cache,),
        pytest.raises(ValueError, match=rf"layer = {layer}, must be in \[1, 3\]"),
    ):
        model.run([Span(cache, [1])], looks={layer: lambda rows: None})


IDS = [3, 1, 4, 1, 5, 9, 2, 6]


@pytest.mark.parametrize("looks_before", [0, 1])
@pytest.mark.parametrize("streamed", [False, True])
def test_a_pass_cut_between_layers_leaves_the_caches_as_they_were(looks_before: int, streamed: bool) -> None:
    model = model_of(0, 2, streamed)
    with released(model.new_cache()) as (cache,):
        feed(model, cache, IDS, [8])
        looks = count()
        append = [1] * (CONTEXT - len(IDS))  # so many rows: a look every other layer
        with pytest.raises(PassStopped) as stopped:
            model.run([Span(cache, append)], lambda: next(looks) == looks_before)
        assert stopped.value.layers == (looks_before if streamed else 2 * looks_before)
        assert cache.length == len(IDS)
        rows, _ = model.run([Span(cache, [7])], lambda: False)
        assert_same(rows, in_one_pass(0, [*IDS, 7])[-1:])


BROKEN = {
    "token = -1, must be in": ([-1], TokenTree()),
    "token = 40, must be in": ([0], TokenTree((40,), (ROOT,))),
    "rows = 0, must be in": ([], TokenTree()),
    "rows = 129, must be in": ([0], TokenTree(tuple(range(128)), (ROOT,) * 128)),
    f"context of {CONTEXT + 1} tokens": ([0] * (CONTEXT - len(IDS)), TokenTree.chain([1])),
}


@pytest.mark.parametrize("message", list(BROKEN))
def test_a_pass_that_is_refused_leaves_everything_as_it_was(message: str) -> None:
    model = model_of(0)
    append, tree = BROKEN[message]
    with released(model.new_cache()) as (cache,):
        feed(model, cache, IDS, [8])
        held = model.pool.held_tokens
        with pytest.raises(ValueError, match=message):
            model.run([Span(cache, append, tree)])
        assert (cache.length, model.pool.held_tokens) == (len(IDS), held)
        assert_same(model.run([Span(cache, [7])])[0], in_one_pass(0, [*IDS, 7])[-1:])


def test_the_last_position_of_the_context_can_be_used() -> None:
    model = model_of(0)
    ids = [i % TINY.vocab_size for i in range(CONTEXT)]
    with released(model.new_cache()) as (cache,):
        model.run([Span(cache, ids[:-2])])
        rows, _ = model.run([Span(cache, ids[-2:-1], TokenTree((ids[-1], 5), (ROOT, ROOT)))])
        assert_same(rows[:2], in_one_pass(0, ids)[-2:])


def test_a_full_kv_leaves_the_caches_usable() -> None:
    model = Transformer(MemoryPack(), threads=1, max_rows=128, max_context=CONTEXT, kv_capacity_tokens=2 * PAGE)
    cache, other = model.new_cache(), model.new_cache()
    feed(model, cache, IDS, [8])
    with pytest.raises(CacheFullError, match="32 of 64 KV positions are held, 64 more are needed"):
        model.run([Span(cache, [1]), Span(other, [0] * (PAGE + 1))])
    assert (cache.length, other.length, model.pool.held_tokens) == (len(IDS), 0, PAGE)
    rows, _ = model.run([Span(cache, [7]), Span(other, IDS)])
    assert_same(rows, np.concatenate([in_one_pass(0, [*IDS, 7])[-1:], in_one_pass(0, IDS)]))
    model.close()
