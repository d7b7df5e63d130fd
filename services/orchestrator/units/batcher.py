"""Items that wait for a unit at the same time share a pass.

Whenever the unit is idle, everything that waits goes out at once, within the limits of a pass. There are no timers: an
item alone leaves alone, at once.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from hetspec.rpc.messages import UnitError
from hetspec.telemetry.tracing import traceparent
from orchestrator.policies.batching import PassLimits, compose_pass
from orchestrator.policies.seen_passes import KEPT, SeenPass
from orchestrator.timeline.task import CURRENT
from orchestrator.units.errors import FAULTS, Nonsense, UnitLost
from orchestrator.units.link import Link, Outcome
from orchestrator.units.metrics import LinkMetrics

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Served(Generic[Result]):
    """An item's result and what it cost."""

    value: Result
    compute_ns: int  # its share of the pass's host time, by rows
    busy_ns: int  # the unit's queue and the whole pass
    waited_ns: int  # here, before the pass was sent


class Entry(Generic[Item, Result]):
    __slots__ = ("alone", "arrived_ns", "is_prompt", "item", "result", "rows", "task", "traceparent")

    def __init__(self, item: Item, rows: int, is_prompt: bool, alone: bool) -> None:
        self.item = item
        self.rows = rows
        self.is_prompt = is_prompt
        self.alone = alone
        self.arrived_ns = time.perf_counter_ns()
        self.traceparent = traceparent()
        self.task = CURRENT.get()
        self.result: asyncio.Future[Served[Result]] = asyncio.get_running_loop().create_future()


class Batcher(Generic[Item, Result]):
    """Keeps one pass in flight over one link.

    passes: those answered lately that read no prompt.
    """

    def __init__(self, link: Link[Item, Result], limits: PassLimits, metrics: LinkMetrics) -> None:
        self.passes: deque[SeenPass] = deque(maxlen=KEPT)
        self._link = link
        self._limits = limits
        self._metrics = metrics
        self._waiting: list[Entry[Item, Result]] = []
        self._flying: list[Entry[Item, Result]] = []
        self._sent_ns = 0

    def __len__(self) -> int:
        """Items waiting or in flight."""
        return len(self._waiting) + len(self._flying)

    async def submit(self, item: Item, rows: int, is_prompt: bool = False, alone: bool = False) -> Served[Result]:
        """Raises UnitError, Nonsense or UnitLost. alone: in a pass of its own.

        When cancelled, the item leaves the queue; a pass nobody waits for any more is cancelled on the unit.
        """
        if not self._link.alive:
            raise UnitLost("the unit is gone")
        entry: Entry[Item, Result] = Entry(item, rows, is_prompt, alone)
        self._waiting.append(entry)
        try:
            return await self._wait_for(entry)
        except asyncio.CancelledError:
            self._cancel_if_abandoned()
            raise

    def next_pass(self) -> list[Item]:
        if self._flying:
            return []
        waiting = [entry for entry in self._waiting if not entry.result.done()]
        self._flying, self._waiting = compose_pass(waiting, self._limits)
        self._sent_ns = time.perf_counter_ns()
        if self._flying:
            self._metrics.pass_sent([self._sent_ns - entry.arrived_ns for entry in self._flying])
            pass_rows = sum(entry.rows for entry in self._flying)
            for entry in self._flying:
                if entry.task is not None:
                    entry.task.sent(entry.arrived_ns, self._sent_ns, entry.rows, pass_rows)
        return [entry.item for entry in self._flying]

    def traceparents(self) -> Sequence[str]:
        parents = [entry.traceparent for entry in self._flying]
        return parents if any(parents) else ()

    def deliver(self, outcome: Outcome[Result] | UnitError | Nonsense) -> None:
        entries, self._flying = self._flying, []
        try:
            self._take(entries, outcome)
        except Exception as error:  # else whoever waits would wait for ever
            self._fail(entries, UnitLost(f"its answer could not be handled: {error}", had_item=True))
            raise

    def _take(self, entries: Sequence[Entry[Item, Result]], outcome: Outcome[Result] | UnitError | Nonsense) -> None:
        now_ns = time.perf_counter_ns()
        self._metrics.pass_answered(now_ns - self._sent_ns)
        if isinstance(outcome, Outcome):
            for entry in entries:
                if entry.task is not None:
                    entry.task.answered(now_ns, outcome.timing.queue_ns, outcome.timing.compute_ns)
            if entries and not any(entry.is_prompt for entry in entries):
                rows = sum(entry.rows for entry in entries)
                self.passes.append(SeenPass(rows, len(entries), outcome.timing.compute_ns))
        self._hand_out(entries, outcome)

    def lose(self, lost: UnitLost) -> None:
        self._fail(self._flying, UnitLost(str(lost), had_item=True, instance=lost.instance))
        self._fail(self._waiting, lost)
        self._flying, self._waiting = [], []

    async def _wait_for(self, entry: Entry[Item, Result]) -> Served[Result]:
        self._link.wake()
        return await entry.result

    def _hand_out(
        self, entries: Sequence[Entry[Item, Result]], outcome: Outcome[Result] | UnitError | Nonsense
    ) -> None:
        if not isinstance(outcome, Outcome):
            self._fail(entries, outcome)
            return
        timing = outcome.timing
        rows = max(1, sum(entry.rows for entry in entries))
        for entry, value in zip(entries, outcome.items, strict=True):
            if isinstance(value, FAULTS):
                self._fail([entry], value)
            else:
                share_ns = timing.compute_ns * entry.rows // rows
                busy_ns = timing.queue_ns + timing.compute_ns
                self._give(entry, Served(value, share_ns, busy_ns, self._sent_ns - entry.arrived_ns))

    def _give(self, entry: Entry[Item, Result], served: Served[Result]) -> None:
        if not entry.result.done():
            entry.result.set_result(served)

    def _fail(self, entries: Iterable[Entry[Item, Result]], fault: Exception) -> None:
        for entry in entries:
            if not entry.result.done():
                entry.result.set_exception(fault)

    def _cancel_if_abandoned(self) -> None:
        if self._flying and all(entry.result.cancelled() for entry in self._flying):
            self._flying = []
            self._link.cancel()
