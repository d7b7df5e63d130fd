"""Paged key/value cache: what a session has committed, and the slots of the tree that hangs below it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hetspec.model.config import ModelConfig
from hetspec.model.forward import PAGE

Page = NDArray[np.float32]  # [layers, 2, kv_heads, PAGE, head_dim]


class CacheFullError(Exception):
    """Not as many pages are free."""


class PagePool:
    """Pages of PAGE positions, handed out and shared by count. Freed pages are kept for the next session."""

    def __init__(self, config: ModelConfig, capacity_tokens: int) -> None:
        self._shape = (config.n_layers, 2, config.n_kv_heads, PAGE, config.head_dim)
        self._capacity = capacity_tokens // PAGE
        self._owners: dict[int, int] = {}  # by address
        self._pages: dict[int, Page] = {}
        self._free: list[int] = []

    @property
    def capacity_tokens(self) -> int:
        return self._capacity * PAGE

    @property
    def held_tokens(self) -> int:
        return len(self._owners) * PAGE

    def allocate(self, count: int) -> list[int]:
        """The addresses of `count` pages of undefined contents, each owned once. All of them, or CacheFullError."""
        free = self._capacity - len(self._owners)
        if count > free:
            held, capacity = self.held_tokens, self.capacity_tokens
            raise CacheFullError(f"{held} of {capacity} KV positions are held, {count * PAGE} more are needed")
        addresses = [self._free.pop() if self._free else self._new_page() for _ in range(count)]
        self._owners.update(dict.fromkeys(addresses, 1))
        return addresses

    def _new_page(self) -> int:
        page = np.empty(self._shape, np.float32)
        self._pages[page.ctypes.data] = page
        return page.ctypes.data

    def share(self, address: int) -> None:
        self._owners[address] += 1

    def release(self, address: int) -> None:
        self._owners[address] -= 1
        if not self._owners[address]:
            del self._owners[address]
            self._free.append(address)

    def page(self, address: int) -> Page:
        return self._pages[address]


class KVCache:
    """One session's keys and values. Slot p < length holds position p; the slots after it are the pending tree's.

    Full pages of the committed part may be shared with forks; nobody writes to them again.
    """

    def __init__(self, pool: PagePool) -> None:
        self._pool = pool
        self.pages: list[int] = []
        self.length = 0

    def reserve(self, slots: int) -> None:
        """Room for slots [0, slots). Raises CacheFullError, and holds no page more than before then."""
        self.pages.extend(self._pool.allocate(-(-slots // PAGE) - len(self.pages)))

    def keep(self, slots: Sequence[int]) -> None:
        """Commits rows computed in these slots, ascending: moves them to follow the committed ones; drops the rest."""
        for source in slots:
            if source != self.length:
                to_page, from_page = self._page_of(self.length), self._page_of(source)
                to_page[..., self.length % PAGE, :] = from_page[..., source % PAGE, :]
            self.length += 1

    def fork(self, length: int) -> KVCache:
        """A cache of the first `length` committed positions: full pages shared, the last one copied."""
        twin = KVCache(self._pool)
        whole, rest = divmod(length, PAGE)
        for address in self.pages[:whole]:
            self._pool.share(address)
            twin.pages.append(address)
        twin.length = length
        if rest:
            try:
                twin.reserve(length)
            except CacheFullError:
                twin.release()
                raise
            twin._page_of(length)[:] = self._page_of(length)
        return twin

    def release(self) -> None:
        for address in self.pages:
            self._pool.release(address)
        self.pages = []
        self.length = 0

    def _page_of(self, slot: int) -> Page:
        return self._pool.page(self.pages[slot // PAGE])
