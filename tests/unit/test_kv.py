"""KV pages are conserved: what is held is what the caches hold, shared pages counted once, and all of it comes back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from hetspec.model.kv import PAGE, CacheFullError, KVCache, PagePool
from tests.packs import TINY

CAPACITY_PAGES = 7


def write(cache: KVCache, slot: int, value: float) -> None:
    cache._page_of(slot)[..., slot % PAGE, :] = value


def read(cache: KVCache, slot: int) -> float:
    values = cache._page_of(slot)[..., slot % PAGE, :]
    assert (values == values.flat[0]).all()
    return float(values.flat[0])


class Caches(RuleBasedStateMachine):
    """Caches beside lists of what each position holds; a slot's number is its content."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = PagePool(TINY, CAPACITY_PAGES * PAGE + PAGE - 1)
        self.caches: list[tuple[KVCache, list[float]]] = []
        self.written = 0.0

    def one(self, data: st.DataObject) -> tuple[KVCache, list[float]]:
        return self.caches[data.draw(st.integers(0, len(self.caches) - 1))]

    @rule()
    def new(self) -> None:
        self.caches.append((KVCache(self.pool), []))

    @precondition(lambda self: self.caches)
    @rule(data=st.data(), append=st.integers(1, 2 * PAGE), tree=st.integers(0, PAGE))
    def grow(self, data: st.DataObject, append: int, tree: int) -> None:
        """As a pass does: rows are written after the committed ones, some are committed, a path of the tree kept."""
        cache, model = self.one(data)
        slots = cache.length + append + tree
        pages = list(cache.pages)
        try:
            cache.reserve(slots)
        except CacheFullError:
            assert -(-slots // PAGE) - len(pages) > CAPACITY_PAGES - self.pool.held_tokens // PAGE
            assert cache.pages == pages
            return
        assert cache.pages[: len(pages)] == pages
        for slot in range(cache.length, slots):
            self.written += 1
            write(cache, slot, self.written)
        values = {slot: read(cache, slot) for slot in range(cache.length, slots)}
        model += [values[slot] for slot in range(cache.length, cache.length + append)]
        cache.length += append
        kept = sorted(data.draw(st.sets(st.integers(cache.length, slots - 1)))) if tree else []
        cache.keep(kept)
        model += [values[slot] for slot in kept]

    @precondition(lambda self: self.caches)
    @rule(data=st.data())
    def fork(self, data: st.DataObject) -> None:
        cache, model = self.one(data)
        length = data.draw(st.integers(0, cache.length))
        held = self.pool.held_tokens
        try:
            self.caches.append((cache.fork(length), model[:length]))
        except CacheFullError:
            assert held == CAPACITY_PAGES * PAGE
            assert length % PAGE
            assert self.pool.held_tokens == held
            return
        assert self.pool.held_tokens - held == (PAGE if length % PAGE else 0)

    @precondition(lambda self: self.caches)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        cache, model = self.one(data)
        cache.release()
        model.clear()

    @invariant()
    def pages_are_conserved(self) -> None:
        pages = {address for cache, _ in self.caches for address in cache.pages}
        assert self.pool.held_tokens == len(pages) * PAGE <= self.pool.capacity_tokens
        for cache, _ in self.caches:
            assert len(set(cache.pages)) == len(cache.pages)
            assert cache.length <= len(cache.pages) * PAGE

    @invariant()
    def every_cache_holds_its_own(self) -> None:
        for cache, model in self.caches:
            assert [read(cache, slot) for slot in range(cache.length)] == model

    def teardown(self) -> None:
        for cache, _ in self.caches:
            cache.release()
        assert self.pool.held_tokens == 0


Caches.TestCase.settings = settings(max_examples=30, stateful_step_count=15, deadline=None)
test_caches_conserve_pages_and_contents = Caches.TestCase


def test_freed_pages_are_used_again() -> None:
    pool = PagePool(TINY, 3 * PAGE)
    first = pool.allocate(3)
    for address in first:
        pool.release(address)
    assert sorted(pool.allocate(3)) == sorted(first)
    with pytest.raises(CacheFullError, match="96 of 96 KV positions are held, 32 more are needed"):
        pool.allocate(1)


def test_a_page_has_room_for_every_layer_head_and_position() -> None:
    pool = PagePool(TINY, PAGE)
    page = pool.page(pool.allocate(1)[0])
    assert page.shape == (TINY.n_layers, 2, TINY.n_kv_heads, PAGE, TINY.head_dim)
    assert page.dtype == np.float32
    assert page.flags.c_contiguous
