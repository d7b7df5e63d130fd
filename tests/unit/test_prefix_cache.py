"""A replica's prefix cache beside its unit: the real session table and page pool, reached through a queue that releases
overtake. Whatever happens, this side knows what the unit holds, keeps its budget, and never takes away what is in use.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from prometheus_client import CollectorRegistry

from hetspec.decoding.history import History
from hetspec.model.kv import PAGE, CacheFullError, KVCache, PagePool
from hetspec.rpc.messages import SessionUpdate, UnitError
from hetspec.rpc.sessions import SessionTable
from orchestrator.units.prefix_cache import PrefixCache
from orchestrator.units.prefix_metrics import PrefixMetrics
from orchestrator.units.prefix_source import Fork, Ids
from orchestrator.units.settings import PrefixSettings
from tests.packs import TINY

CAPACITY_PAGES, BUDGET_PAGES = 14, 10
LEASE_S = 60.0


class Clock:
    """An event loop's time and timers, moved by hand."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[Timer] = []

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: object) -> Timer:
        timer = Timer(self, self.now + delay, callback)
        self.timers.append(timer)
        return timer

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        while due := [timer for timer in self.timers if timer.at <= self.now]:
            due[0].cancel()
            due[0].callback()


@dataclass
class Timer:
    clock: Clock
    at: float
    callback: object

    def cancel(self) -> None:
        self.clock.timers.remove(self)


class PagedState:
    """As the verifier's: a cache of pages."""

    def __init__(self, cache: KVCache) -> None:
        self.cache = cache

    def keep(self, nodes: Sequence[int]) -> None:
        assert not nodes

    def fork(self, length: int) -> PagedState:
        return PagedState(self.cache.fork(length))

    def release(self) -> None:
        self.cache.release()


@dataclass(eq=False)
class Client:
    """A session as its request sees it. The prompt is read in chunks; what comes then is its output."""

    name: str
    prompt: list[int]
    beginning: asyncio.Task[Fork | None]
    output: list[int] = field(default_factory=list)
    fork: Fork | None = None
    known: int = 0
    asked: SessionUpdate | None = None

    @property
    def ids(self) -> list[int]:
        return [*self.prompt, *self.output]

    @property
    def is_open(self) -> bool:
        return self.beginning.done()


def ids_of(tokens: Sequence[int]) -> Ids:
    return np.array(tokens, np.uint32)


def common(a: Sequence[int], b: Sequence[int]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def value_of(registry: CollectorRegistry, name: str, **labels: str) -> float:
    return registry.get_sample_value(name, {"unit": "verifier"} | labels) or 0.0


@st.composite
def prompts(draw: st.DrawFn) -> list[int]:
    """Of two families; those of one begin alike, for a while."""
    stem = draw(st.sampled_from([10, 20]))
    shared = draw(st.sampled_from([PAGE - 1, PAGE, PAGE + 1, 2 * PAGE + 5, 5 * PAGE]))
    return [stem + i % 7 for i in range(shared)] + draw(st.lists(st.integers(0, 1), min_size=1, max_size=3))


class Caches(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clock = Clock()
        self.pool = PagePool(TINY, CAPACITY_PAGES * PAGE)
        self.table: SessionTable[PagedState] = SessionTable(lambda: PagedState(KVCache(self.pool)))
        self.registry = CollectorRegistry()
        self.cache = PrefixCache(
            self.pool.capacity_tokens,
            PAGE,
            PrefixSettings(str(BUDGET_PAGES * PAGE), LEASE_S),
            PrefixMetrics(self.registry).of("verifier"),
            self.on_eviction,
            self.clock,
        )
        self.clients: list[Client] = []
        self.queue: list[tuple[Client, SessionUpdate, int]] = []
        self.aborted: set[str] = set()
        self.forgot = False
        self.begun = 0

    # --- the unit

    def on_eviction(self, names: Sequence[str]) -> None:
        in_use = {client.fork.source.session for client in self.clients if client.fork}
        assert not in_use & set(names), "released while a fork of it was under way"
        self.table.release(names)

    def release(self, client: Client) -> None:
        self.queue = [entry for entry in self.queue if entry[0] is not client]
        self.table.release([client.name])
        self.clients.remove(client)

    @precondition(lambda self: self.queue)
    @rule()
    def serve(self) -> None:
        client, update, slots = self.queue.pop(0)
        client.asked = None
        try:
            session = self.table.enter(update)
            session.state.cache.reserve(slots)
        except CacheFullError:
            assert self.cache._ledger.free_pages < 0, "refused, though there was room by the ledger"
            self.cache.evict_all("exhausted")
            self.leave(client)
            return
        except UnitError:  # SESSION_LOST: there is no other reason
            source = client.fork.source.session if client.fork else ""
            assert self.forgot or source in self.aborted, "lost, though nobody aborted or forgot it"
            fork, client.fork = client.fork, None
            if fork:
                self.cache.lost(fork)
            self.leave(client)
            return
        session.history.extend(update.append)
        session.state.cache.length += len(update.append)
        fork, client.fork = client.fork, None
        if fork:
            self.cache.served(fork)
        client.known += len(update.append)
        self.cache.advance(client.name, client.known)
        self.step()

    @precondition(lambda self: self.begun % 8 == 7)
    @rule()
    def forget(self) -> None:
        """As a restart would, if the connection outlived it."""
        self.table.release(list(self.table._sessions))
        self.forgot = True

    # --- sessions

    @rule(prompt=prompts())
    def begin(self, prompt: list[int]) -> None:
        self._begin(prompt)

    @rule(prompt=prompts())
    def begin_read_and_end(self, prompt: list[int]) -> None:
        client = self._begin(prompt)
        if client.is_open:
            self._ask(client, len(prompt), nodes=5)
            while client.asked is not None:
                self.serve()
            if client in self.clients:
                self._end_well(client)

    def _begin(self, prompt: list[int]) -> Client:
        self.begun += 1
        name = f"s{self.begun}"
        client = Client(name, prompt, self.loop.create_task(self.cache.begin(name, ids_of(prompt))))
        self.clients.append(client)
        there, coming = self.beginnings(prompt)
        promised = self.cache.promise(ids_of(prompt))
        self.step()
        if coming >= there + PAGE:
            assert (client.is_open, promised) == (False, coming)
        else:
            found = there if there >= PAGE else 0
            assert (client.is_open, client.known, promised) == (True, found, found)
        return client

    def beginnings(self, prompt: list[int]) -> tuple[int, int]:
        """By brute force: tokens there already, and those that will be once everybody has read their prompt."""
        there = [common(entry.ids.tolist(), prompt[:-1]) for entry in self.cache._entries.values()]
        others = [client for client in self.clients if client.is_open and client.prompt is not prompt]
        coming = [common(client.prompt, prompt[:-1]) for client in others]
        there += [
            min(length, 0 if client.fork else client.known) for client, length in zip(others, coming, strict=True)
        ]
        return max(there, default=0), max([*there, *coming]) if [*there, *coming] else 0

    def step(self) -> None:
        """Lets those go on that were waiting."""
        for _ in range(3):
            self.loop.run_until_complete(asyncio.sleep(0))
        for client in self.clients:
            if client.is_open and client.fork is None and client.known == 0 and client.beginning.result():
                client.fork = client.beginning.result()
                client.known = client.fork.length
                assert client.fork.source.session not in self.aborted
                assert client.known < len(client.prompt)

    def idle(self) -> list[Client]:
        return [client for client in self.clients if client.is_open and client.asked is None]

    @precondition(lambda self: self.idle())
    @rule(data=st.data(), most=st.sampled_from([1, PAGE, 1000]), nodes=st.integers(0, PAGE))
    def ask(self, data: st.DataObject, most: int, nodes: int) -> None:
        self._ask(data.draw(st.sampled_from(self.idle())), most, nodes)

    def _ask(self, client: Client, most: int, nodes: int) -> None:
        """Of what the unit does not have yet; once it has the prompt, of an output."""
        if client.known == len(client.ids):
            client.output += [5] * (1 + most % 4)
        append = client.ids[client.known :][:most]
        slots = client.known + len(append) + nodes
        source = client.fork.source.session if client.fork else ""
        self.cache.reserve(client.name, slots)
        assert self.cache._ledger.free_pages >= 0 or self.cache._oldest_idle() is None, "entries kept it waiting"
        known = History(client.ids[: client.known])
        client.asked = SessionUpdate(client.name, 1, len(known), known.hash, (), tuple(append), source)
        self.queue.append((client, client.asked, slots))

    @precondition(lambda self: self.idle_and_told())
    @rule(data=st.data())
    def end_well(self, data: st.DataObject) -> None:
        self._end_well(data.draw(st.sampled_from(self.idle_and_told())))

    def idle_and_told(self) -> list[Client]:
        return [client for client in self.idle() if client.fork is None]

    def _end_well(self, client: Client) -> None:
        if self.cache.keep(client.name, ids_of(client.ids[: client.known])):
            self.clients.remove(client)
        else:
            self.leave(client)
        self.step()

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        client = data.draw(st.sampled_from(self.clients))
        client.beginning.cancel()
        self.aborted.add(client.name)
        self.leave(client)

    def leave(self, client: Client) -> None:
        fork, client.fork = client.fork, None
        if fork:
            self.cache.dropped(fork)
        self.cache.leave(client.name)
        self.release(client)
        self.step()

    @rule(seconds=st.sampled_from([1.0, 0.4 * LEASE_S, LEASE_S]))
    def pass_time(self, seconds: float) -> None:
        self.clock.pass_time(seconds)
        for entry in self.cache._entries.values():
            assert self.clock.now - entry.used <= LEASE_S

    # --- what always holds

    @invariant()
    def budget_is_kept(self) -> None:
        in_use = {client.fork.source.session for client in self.clients if client.fork}
        idle = [name for name in self.cache._entries if name not in in_use]
        assert self.cache._ledger.held_tokens(idle) <= BUDGET_PAGES * PAGE
        assert self.cache.held_tokens <= BUDGET_PAGES * PAGE or in_use

    @invariant()
    def ledger_counts_as_the_unit_does(self) -> None:
        """Once the unit has done all that it was told."""
        if not self.queue and not self.forgot and not any(client.fork for client in self.clients):
            assert self.cache._ledger.free_pages * PAGE == self.pool.capacity_tokens - self.pool.held_tokens

    @invariant()
    def entries_are_committed_tokens(self) -> None:
        for name, entry in self.cache._entries.items():
            assert name not in self.aborted
            held = self.table._sessions.get(name)
            assert self.forgot or held is not None
            assert held is None or held.history[:] == entry.ids.tolist()

    @invariant()
    def nobody_waits_for_nothing(self) -> None:
        for client in self.clients:
            if not client.is_open:
                there, coming = self.beginnings(client.prompt)
                assert coming >= there + PAGE

    def teardown(self) -> None:
        for client in list(self.clients):
            client.beginning.cancel()
            self.leave(client)
        self.cache.evict_all("test")
        assert (len(self.cache), self.cache.held_tokens, len(self.table), self.pool.held_tokens) == (0, 0, 0, 0)
        assert self.cache._ledger.free_pages == CAPACITY_PAGES
        self.loop.run_until_complete(asyncio.sleep(0))
        self.loop.close()


Caches.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
test_cache_knows_what_its_unit_holds_and_takes_nothing_that_is_used = Caches.TestCase


# --- by example


class Bench:
    """A cache over a unit of so many pages that does as it is told. `read`: a session from its beginning to its end."""

    def __init__(self, budget_pages: int = 100, capacity_pages: int = 100) -> None:
        self.clock = Clock()
        self.released: list[str] = []
        self.registry = CollectorRegistry()
        self.cache = PrefixCache(
            capacity_pages * PAGE,
            PAGE,
            PrefixSettings(str(budget_pages * PAGE), LEASE_S),
            PrefixMetrics(self.registry).of("verifier"),
            self.released.extend,
            self.clock,
        )

    async def start(self, name: str, tokens: Sequence[int]) -> int:
        """Tokens taken over."""
        fork = await self.cache.begin(name, ids_of(tokens))
        self.cache.reserve(name, len(tokens))
        if fork is not None:
            self.cache.served(fork)
        self.cache.advance(name, len(tokens))
        return fork.length if fork else 0

    async def read(self, name: str, tokens: Sequence[int]) -> int:
        taken = await self.start(name, tokens)
        if not self.cache.keep(name, ids_of(tokens)):
            self.cache.leave(name)
            self.released.append(name)
        return taken

    def evictions(self, reason: str) -> float:
        return value_of(self.registry, "hetspec_prefix_evictions_total", reason=reason)


A = list(range(100, 100 + 3 * PAGE))


@pytest.mark.parametrize("length", [PAGE - 1, PAGE, PAGE + 1, 2 * PAGE, 3 * PAGE])
async def test_all_but_the_last_token_is_taken_over_if_it_is_a_page_or_more(length: int) -> None:
    bench = Bench()
    await bench.read("a", A)
    expected = length - 1 if length > PAGE else 0
    assert await bench.read("b", A[:length]) == expected
    assert value_of(bench.registry, "hetspec_prefix_hits_total") == (expected > 0)
    assert value_of(bench.registry, "hetspec_prefix_misses_total") == 1 + (expected == 0)
    assert value_of(bench.registry, "hetspec_prefix_reused_tokens_total") == expected


async def test_a_longer_entry_takes_the_place_of_the_one_it_begins_with() -> None:
    bench = Bench()
    await bench.read("a", A)
    assert await bench.read("b", [*A, 1, 2]) == len(A)
    assert (len(bench.cache), bench.released, bench.evictions("superseded")) == (1, ["a"], 1)
    assert await bench.read("c", A) == len(A) - 1
    assert (len(bench.cache), bench.released) == (1, ["a", "c"])
    assert bench.cache.held_tokens == 4 * PAGE


async def test_the_longest_unused_goes_first() -> None:
    bench = Bench(budget_pages=6)
    b = [token + 1000 for token in A]
    await bench.read("a", A)
    await bench.read("b", b)
    assert await bench.read("a again", [*A[:-1], 7]) == len(A) - 1
    assert bench.released == ["b"]
    assert bench.evictions("budget") == 1


async def test_a_session_larger_than_the_budget_is_not_kept_and_drives_nobody_out() -> None:
    bench = Bench(budget_pages=3)
    await bench.read("a", A)
    await bench.read("b", range(4 * PAGE))
    assert (len(bench.cache), bench.released) == (1, ["b"])


async def test_nothing_is_kept_without_a_budget_but_running_sessions_share() -> None:
    bench = Bench(budget_pages=0)
    await bench.start("a", A)
    assert await bench.start("b", A) == len(A) - 1
    for name in ("a", "b"):
        assert not bench.cache.keep(name, ids_of(A))
    assert bench.cache.held_tokens == 0


async def test_entries_make_room_for_running_sessions() -> None:
    bench = Bench(capacity_pages=8)
    await bench.read("a", A)
    await bench.read("b", [token + 1000 for token in A])
    await bench.start("c", range(4 * PAGE))
    assert bench.released == ["a"]
    bench.cache.reserve("c", 5 * PAGE)
    assert bench.released == ["a"]
    bench.cache.reserve("c", 5 * PAGE + 1)
    assert bench.released == ["a", "b"]
    assert bench.evictions("room") == 2


async def test_a_lease_ends_without_use_and_is_renewed_by_it() -> None:
    bench = Bench()
    b = [token + 1000 for token in A]
    await bench.read("a", A)
    await bench.read("b", b)
    bench.clock.pass_time(LEASE_S * 0.6)
    await bench.start("c", A)
    bench.clock.pass_time(LEASE_S * 0.6)
    assert bench.released == ["b"]
    bench.clock.pass_time(LEASE_S * 0.6)
    assert bench.released == ["b", "a"]
    assert bench.evictions("lease") == 2
    assert not bench.clock.timers


async def test_one_reads_a_prompt_that_others_wait_for() -> None:
    bench = Bench()
    assert await bench.cache.begin("a", ids_of(A)) is None
    waiting = [asyncio.create_task(bench.start(name, A)) for name in ("b", "c", "d")]
    for read in (0, PAGE // 2, PAGE, 2 * PAGE):  # then what is still to come is less than a page
        await asyncio.sleep(0)
        assert not any(task.done() for task in waiting)
        bench.cache.reserve("a", read)
        bench.cache.advance("a", read)
    assert await asyncio.gather(*waiting) == [2 * PAGE, len(A) - 1, len(A) - 1]


async def test_when_the_one_that_reads_is_gone_another_reads_and_the_rest_wait_for_it() -> None:
    bench = Bench()
    await bench.cache.begin("a", ids_of(A))
    waiting = {name: asyncio.create_task(bench.cache.begin(name, ids_of(A))) for name in ("b", "c")}
    await asyncio.sleep(0)
    bench.cache.leave("a")
    done, pending = await asyncio.wait(waiting.values(), return_when=asyncio.FIRST_COMPLETED)
    assert [task.result() for task in done] == [None]
    first = next(name for name, task in waiting.items() if task in done)
    bench.cache.reserve(first, len(A))
    bench.cache.advance(first, len(A))
    fork = await pending.pop()
    assert fork is not None
    assert (fork.source.session, fork.length) == (first, len(A) - 1)


async def test_a_session_that_ends_while_it_is_forked_stays_until_the_fork_is_answered() -> None:
    bench = Bench(budget_pages=0)
    await bench.start("a", A)
    fork = await bench.cache.begin("b", ids_of(A))
    assert fork is not None
    assert bench.cache.keep("a", ids_of(A))
    assert bench.released == []
    bench.cache.served(fork)
    assert bench.released == ["a"]


async def test_what_the_unit_lost_is_asked_for_once() -> None:
    bench = Bench()
    await bench.read("a", A)
    fork = await bench.cache.begin("b", ids_of(A))
    assert fork is not None
    bench.cache.lost(fork)
    bench.cache.leave("b")
    assert await bench.cache.begin("b", ids_of(A)) is None
    assert bench.evictions("lost") == 1


async def test_nobody_waits_for_one_whose_tokens_the_unit_lost() -> None:
    bench = Bench()
    await bench.cache.begin("a", ids_of([*A, *A]))
    bench.cache.reserve("a", len(A))
    bench.cache.advance("a", len(A))
    fork = await bench.cache.begin("b", ids_of(A))
    assert fork is not None
    waiting = asyncio.create_task(bench.cache.begin("c", ids_of([*A, *A])))
    await asyncio.sleep(0)
    assert not waiting.done()
    bench.cache.lost(fork)
    bench.cache.leave("b")
    assert await waiting is None


async def test_with_its_replica_all_is_gone_and_nobody_waits() -> None:
    bench = Bench()
    await bench.read("a", A)
    await bench.cache.begin("b", ids_of([*A, *A]))
    waiting = asyncio.create_task(bench.cache.begin("c", ids_of([*A, *A])))
    await asyncio.sleep(0)
    bench.cache.close()
    assert await waiting is None
    assert (len(bench.cache), bench.cache.held_tokens, bench.clock.timers) == (0, 0, [])
    assert await bench.cache.begin("d", ids_of(A)) is None
