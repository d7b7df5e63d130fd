"""One replica's sessions as beginnings of others.

A session that ended well stays open on its unit for a while, as an entry of the cache, and one that runs may be shared
too: whoever has the same beginning forks it, which shares its full pages and copies no more than the last one. Only
committed tokens are ever shared. Entries cost a running session nothing: whenever it needs their room they go, the
longest unused first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from orchestrator.units.page_ledger import PageLedger
from orchestrator.units.prefix_metrics import UnitPrefixMetrics
from orchestrator.units.prefix_source import Fork, Found, Ids, Source, common_prefix, find
from orchestrator.units.settings import PrefixSettings


class Timer(Protocol):
    """Of an event loop, what leases need."""

    def time(self) -> float: ...

    def call_later(self, delay: float, callback: Callable[[], object], /) -> Any: ...


class PrefixCache:
    """Gone with its replica's incarnation. A beginning shorter than a page is not worth a fork."""

    def __init__(
        self,
        kv_tokens: int,
        page_tokens: int,
        settings: PrefixSettings,
        metrics: UnitPrefixMetrics,
        release: Callable[[Sequence[str]], object],
        timer: Timer,
    ) -> None:
        """kv_tokens: what the unit can hold; 0: it holds no KV, and nothing is shared there."""
        self._is_open = kv_tokens > 0 and page_tokens > 0
        self._ledger = PageLedger(kv_tokens, max(1, page_tokens))
        self._budget_tokens = settings.budget_tokens(kv_tokens)
        self._lease_s = settings.lease_s
        self._metrics = metrics
        self._release = release
        self._timer = timer
        self._entries: dict[str, Source] = {}  # longest unused first
        self._running: dict[str, Source] = {}
        self._leaving: dict[str, Source] = {}  # evicted; released once the forks that were asked for are answered
        self._moved = asyncio.Event()  # something running has read more, or has ended
        self._expiry: Any | None = None

    def __len__(self) -> int:
        """Entries."""
        return len(self._entries)

    @property
    def held_tokens(self) -> int:
        """KV positions of whole pages that entries hold, running sessions' share of these included."""
        return self._ledger.held_tokens([*self._entries, *self._leaving])

    # --- for sessions that begin

    def promise(self, ids: Ids) -> int:
        """How many of these tokens would not have to be computed here."""
        found = self._find(ids)
        return found.fork.length if found else 0

    async def begin(self, session: str, ids: Ids, read_again: int = 0) -> Fork | None:
        """What the session is to begin from, if anything: its next item asks it of the unit. Then it is shared itself.

        read_again: tokens at the end of the shared ones that the session wants to read itself.
        A beginning that another session is just reading is waited for. The fork must be told how it ended: `served`,
        `lost` or `dropped`.
        """
        while (found := self._find(ids)) is not None and not found.is_there:
            self._moved.clear()
            await self._moved.wait()
        if not self._is_open:
            return None
        self._running[session] = Source(session, ids)
        if found is None:
            self._metrics.miss()
            return None
        source, length = found.fork
        fork = Fork(source, max(1, length - read_again))
        source.forks += 1
        self._touch(source)
        self._ledger.fork(session, source.session, fork.length)
        return fork

    def served(self, fork: Fork) -> None:
        self._metrics.hit(fork.length)
        self.dropped(fork)

    def lost(self, fork: Fork) -> None:
        """The unit does not have these tokens: nobody is sent there for them again."""
        self._running.pop(fork.source.session, None)
        self._evict(fork.source, "lost")
        self.dropped(fork)
        self._moved.set()

    def dropped(self, fork: Fork) -> None:
        """Nobody waits for it any more."""
        source = fork.source
        source.forks -= 1
        if not source.forks and self._leaving.pop(source.session, None) is not None:
            self._free(source)

    def _find(self, ids: Ids) -> Found | None:
        """The last token is left out: its row is what the session is there for."""
        sources = [*self._entries.values(), *self._running.values()]
        return find(sources, ids[:-1], self._ledger.page_tokens)

    # --- for sessions that run

    def reserve(self, session: str, slots: int) -> None:
        """Before the unit is asked for it: room for so many positions, at the cost of entries."""
        if not self._is_open:
            return
        missing = self._ledger.missing(session, slots)
        while missing > self._ledger.free_pages and (oldest := self._oldest_idle()) is not None:
            self._evict(oldest, "room")
        self._ledger.grow(session, slots)

    def advance(self, session: str, committed: int) -> None:
        """So many tokens of the session are committed on the unit."""
        if (source := self._running.get(session)) is not None:
            source.committed = min(committed, len(source.ids))
            self._moved.set()

    def leave(self, session: str) -> None:
        """The session is being released: nobody begins from it any more."""
        self._running.pop(session, None)
        self._ledger.release(session)
        self._moved.set()

    # --- entries

    def keep(self, session: str, ids: Ids) -> bool:
        """Makes a session that ended well an entry. False where it is not to be one, and has to be released."""
        source = self._running.pop(session, None) or Source(session, ids)
        if self._is_worth_keeping(session, ids):
            source.ids, source.committed = ids, len(ids)
            self._entries[session] = source
            self._touch(source)
            self._keep_within_budget()
        elif source.forks:
            self._leaving[session] = source
        else:
            return False
        self._moved.set()
        return True

    def evict_all(self, reason: str) -> bool:
        """Whether there was anything to evict."""
        entries = list(self._entries.values())
        for entry in entries:
            self._evict(entry, reason)
        return bool(entries)

    def close(self) -> None:
        """The replica is gone, and what it held with it."""
        self._is_open = False
        self._entries.clear()
        self._running.clear()
        self._leaving.clear()
        self._moved.set()
        if self._expiry is not None:
            self._expiry.cancel()

    def _is_worth_keeping(self, session: str, ids: Ids) -> bool:
        fits = self._ledger.held_tokens([session]) <= self._budget_tokens
        if not self._is_open or not fits or len(ids) < self._ledger.page_tokens:
            return False
        if (longer := self._covering(ids)) is not None:
            self._touch(longer)
        return longer is None

    def _keep_within_budget(self) -> None:
        while self.held_tokens > self._budget_tokens and (oldest := self._oldest_idle()) is not None:
            self._evict(oldest, "budget")

    def _covering(self, ids: Ids) -> Source | None:
        """The entry that begins with all of `ids`. Entries that these go beyond make way for them."""
        for entry in list(self._entries.values()):
            common = common_prefix(entry.ids, ids)
            if common == len(ids):
                return entry
            if common == len(entry.ids):
                self._evict(entry, "superseded")
        return None

    def _oldest_idle(self) -> Source | None:
        return next((entry for entry in self._entries.values() if not entry.forks), None)

    def _touch(self, source: Source) -> None:
        source.used = self._timer.time()
        if self._entries.pop(source.session, None) is not None:
            self._entries[source.session] = source
        self._watch_leases()

    def _evict(self, entry: Source, reason: str) -> None:
        if self._entries.pop(entry.session, None) is None:
            return
        self._metrics.evicted(reason)
        if entry.forks:
            self._leaving[entry.session] = entry
        else:
            self._free(entry)

    def _free(self, entry: Source) -> None:
        self._ledger.release(entry.session)
        self._release([entry.session])

    def _watch_leases(self) -> None:
        if self._expiry is None and self._entries:
            oldest = next(iter(self._entries.values()))
            delay_s = max(0.0, oldest.used + self._lease_s - self._timer.time())
            self._expiry = self._timer.call_later(delay_s, self._expire)

    def _expire(self) -> None:
        self._expiry = None
        ended = self._timer.time() - self._lease_s
        for entry in [entry for entry in self._entries.values() if entry.used <= ended]:
            self._evict(entry, "lease")
        self._watch_leases()
