"""The KV pages that a unit's sessions hold, counted on this side by the unit's own rule (hetspec.model.kv).

So the orchestrator knows what a unit has room for before it asks, and never learns it from a refusal.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable


class PageLedger:
    """Pages by session. Full pages of a common beginning are shared, and count once; nothing shrinks but by release."""

    def __init__(self, capacity_tokens: int, page_tokens: int) -> None:
        self.page_tokens = page_tokens
        self._capacity = capacity_tokens // page_tokens
        self._pages: dict[str, list[int]] = {}
        self._owners: Counter[int] = Counter()
        self._numbers = itertools.count()

    @property
    def free_pages(self) -> int:
        """Below zero where running sessions were promised more than there is."""
        return self._capacity - len(self._owners)

    def held_tokens(self, sessions: Iterable[str]) -> int:
        """By these sessions together."""
        return len(set().union(*(self._pages.get(session, ()) for session in sessions))) * self.page_tokens

    def missing(self, session: str, slots: int) -> int:
        """Pages the session lacks to hold so many positions."""
        return max(0, -(-slots // self.page_tokens) - len(self._pages.get(session, ())))

    def grow(self, session: str, slots: int) -> None:
        new = list(itertools.islice(self._numbers, self.missing(session, slots)))
        self._pages.setdefault(session, []).extend(new)
        self._owners.update(new)

    def fork(self, session: str, parent: str, length: int) -> None:
        """`session` holds the full pages of the parent's first `length` positions; the others it gets as it grows."""
        shared = self._pages[parent][: length // self.page_tokens]
        self._pages[session] = list(shared)
        self._owners.update(shared)

    def release(self, session: str) -> None:
        pages = self._pages.pop(session, [])
        self._owners.subtract(pages)
        for page in pages:
            if not self._owners[page]:
                del self._owners[page]
