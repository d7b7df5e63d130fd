"""A discrete-event clock. Time passes only when every session waits for a device, and then to the next event.

A device is a resource that one task holds at a time. A task is sent to its unit when its device gets to it; what it
costs is known when the unit has answered, and then its end is an event. No event is handled while an earlier one may
still become known. So the order of events, and every time, is a function of the workload alone: how fast the host
computes does not enter.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, TypeVar

from hetspec.hardware.cost import Use
from hetspec.hardware.energy import static_pj
from orchestrator.clock.clock import Arrival
from orchestrator.clock.hardware import Hardware
from orchestrator.clock.pace import Pace
from orchestrator.clock.presence import PRESENT, Presence

T = TypeVar("T")
_END, _ARRIVAL, _DISPATCH = range(3)  # of events at the same time: what has ended makes room for what begins


class Queue(Protocol):
    """What waits for one unit."""

    @property
    def device(self) -> str: ...

    @property
    def place(self) -> int:
        """Orders queues whose items come up at the same time."""

    @property
    def ready_ns(self) -> int | None:
        """When what waits there could have been sent first; None where nothing can be."""

    def send(self) -> None:
        """The next pass, to the unit."""


class NotPriced(Exception):
    """The profile does not tell what a task costs."""


Tell = Callable[[NotPriced | None], None]


@dataclass(slots=True)
class _Sent:
    """answer: how to price it, and whom to tell of its end."""

    began_ns: int
    answer: tuple[Callable[[], int], Tell] | None = None


@dataclass(order=True, slots=True)
class _Event:
    at_ns: int
    kind: int
    number: int
    run: Callable[[], Any] = field(compare=False)


class World:
    """In every `present` session one task of the event loop at a time is a runner, or it waits, for a device through
    `hand_over` or for others through `away`. Time stands while there are runners."""

    def __init__(self, hardware: Hardware, pace: Pace) -> None:
        self.hardware = hardware
        self._pace = pace
        self._now_ns = 0
        self._runners = 0
        self._numbers = itertools.count()
        self._events: list[_Event] = []
        self._queues: list[Queue] = []
        self._sent: dict[Queue, _Sent] = {}  # passes whose end is not known, in the order of their beginnings
        self._ends: dict[Queue, _Event] = {}  # of passes whose end is known
        self._announced: list[tuple[Arrival, asyncio.Future[int]]] = []
        self._present: list[Presence] = []
        self._charged_ns = 0
        self._forget: list[Callable[[], None]] = []
        self._is_due = False
        self._timer: asyncio.TimerHandle | None = None
        self.unowned_pj: Counter[str] = Counter()
        """By device: drawn while no session was there, or for one that was gone before its task was over."""

    @property
    def name(self) -> str:
        return self._pace.name

    def now_ns(self) -> int:
        return self._now_ns

    # --- sessions

    @asynccontextmanager
    async def present(self, arrival: Arrival | None) -> AsyncIterator[Presence | None]:
        arrival_ns = await self._arrive(arrival or Arrival())
        presence = Presence(next(self._numbers), arrival_ns)
        token = PRESENT.set(presence)
        self._charge_static()
        self._present.append(presence)
        busy = self.hardware.devices.busy_ns(self._now_ns)
        try:
            yield presence
        finally:
            with suppress(ValueError):  # where another task of the event loop ends what one began
                PRESENT.reset(token)
            self._charge_static()
            self._present.remove(presence)
            presence.end_ns = self._now_ns
            now_busy = self.hardware.devices.busy_ns(self._now_ns)
            presence.busy_ns = {device: now_busy[device] - busy[device] for device in busy}
            presence.busy_spans = self.hardware.devices.spans(presence.arrival_ns, self._now_ns)
            if not self._present:
                self._rest()
            self._stop_running()

    def when_idle(self, forget: Callable[[], None]) -> None:
        """Called when the last session has gone, in a world that must not remember: the next workload finds it as the
        first one did."""
        self._forget.append(forget)

    def _rest(self) -> None:
        if self._pace.forgets:
            for forget in self._forget:
                forget()

    async def _arrive(self, arrival: Arrival) -> int:
        if not self._present and not self._announced:
            self._now_ns = self._pace.wake(self._now_ns)
            self._charge_static()
            if self._pace.forgets:
                self.hardware.devices.rest(self._now_ns)
        if not arrival.after_ns and arrival.sessions <= 1 and not self._announced:
            self._runners += 1
            return self._now_ns
        come: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        place = arrival, come
        self._announced.append(place)
        self._open_workload()
        try:
            return await come
        except asyncio.CancelledError:
            if place in self._announced:
                self._announced.remove(place)
            elif come.done() and not come.cancelled():
                self._stop_running()
            raise

    def _open_workload(self) -> None:
        """Once all who were announced are there: each at its time."""
        if len(self._announced) < max(arrival.sessions for arrival, _ in self._announced):
            return
        ordered = sorted(self._announced, key=lambda place: place[0].after_ns)
        self._announced = []
        for arrival, come in ordered:
            at_ns = self._now_ns + arrival.after_ns
            self._schedule(at_ns, _ARRIVAL, partial(self.wake, come, at_ns))
        self._look_soon()

    def _charge_static(self) -> None:
        """What all devices drew since the last call, to those that were there, in equal parts."""
        since_ns, self._charged_ns = self._charged_ns, self._now_ns
        for device, power_uw in self.hardware.static_uw.items():
            drawn_pj = static_pj(power_uw, since_ns, self._now_ns)
            if not self._present:
                self.unowned_pj[device] += drawn_pj
                continue
            each, rest = divmod(drawn_pj, len(self._present))
            for place, presence in enumerate(self._present):
                presence.static_pj[device] += each + (place < rest)

    # --- runners

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        self._runners += 1
        task = asyncio.create_task(work)
        task.add_done_callback(lambda _: self._stop_running())
        return task

    async def join(self, task: asyncio.Task[T]) -> T:
        if not task.done():
            ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            task.add_done_callback(lambda _: self.wake(ended, None))
            await self.hand_over(ended)
        return await task

    async def hand_over(self, result: asyncio.Future[T]) -> T:
        """Waits, no runner meanwhile, for what `wake` or `fail` ends."""
        self._stop_running()
        try:
            return await result
        except asyncio.CancelledError:
            if not result.done() or result.cancelled():
                self._runners += 1
            raise

    def wake(self, result: asyncio.Future[T], value: T) -> None:
        if not result.done():
            self._runners += 1
            result.set_result(value)

    def fail(self, result: asyncio.Future[Any], fault: Exception) -> None:
        if not result.done():
            self._runners += 1
            result.set_exception(fault)

    @contextmanager
    def away(self) -> Iterator[None]:
        self._stop_running()
        try:
            yield
        finally:
            self._runners += 1

    def _stop_running(self) -> None:
        self._runners -= 1
        self._look_soon()

    # --- devices

    def open(self, queue: Queue) -> None:
        self._queues.append(queue)

    def close(self, queue: Queue) -> None:
        self._queues.remove(queue)
        self.dropped(queue)

    def sent(self, queue: Queue) -> None:
        """The pass has begun."""
        self._sent[queue] = _Sent(self._now_ns)

    def dropped(self, queue: Queue) -> None:
        """Its pass has no outcome that anybody waits for."""
        self._sent.pop(queue, None)
        self._price_answered()

    def answered(self, queue: Queue, end_ns: Callable[[], int], tell: Tell) -> None:
        """By the unit. end_ns: prices the pass, which may depend on those that began before, so that these come first;
        may raise ValueError. tell: called when it has ended, with what is wrong with it."""
        if (sent := self._sent.get(queue)) is not None:
            sent.answer = end_ns, tell
            self._price_answered()

    def _price_answered(self) -> None:
        for queue, sent in list(self._sent.items()):
            if sent.answer is None:
                break
            end_ns, tell = sent.answer
            del self._sent[queue]
            try:
                at_ns, fault = end_ns(), None
            except ValueError as error:
                at_ns, fault = sent.began_ns, NotPriced(str(error))
            self._ends[queue] = self._schedule(at_ns, _END, partial(self._end, queue, tell, fault))
        self._look_soon()

    def _end(self, queue: Queue, tell: Tell, fault: NotPriced | None) -> None:
        del self._ends[queue]
        tell(fault)

    def cut(self, queue: Queue, end_ns: int) -> None:
        """A pass whose end is known ends earlier than that."""
        event = self._ends[queue]
        self._events.remove(event)
        heapq.heapify(self._events)
        self._ends[queue] = self._schedule(end_ns, _END, event.run)

    def spend_unowned(self, uses: Iterable[Use]) -> None:
        for use in uses:
            self.unowned_pj[use.device] += use.energy_pj

    # --- events

    def _look_soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._look)

    def _look(self) -> None:
        self._is_due = False
        while not self._runners and not self._announced:
            event = self._next()
            if event is None or any(event.at_ns > sent.began_ns for sent in self._sent.values()):
                return
            if (wait_s := self._pace.wait_s(event.at_ns)) > 0:
                self._look_in(wait_s)
                return
            self._happen(event)

    def _happen(self, event: _Event) -> None:
        if event.kind != _DISPATCH:
            heapq.heappop(self._events)
        self._now_ns = max(self._now_ns, event.at_ns)
        lag_ns = self._pace.lag_ns(event.at_ns)
        for presence in self._present:
            presence.lag_ns = max(presence.lag_ns, lag_ns)
        event.run()

    def _next(self) -> _Event | None:
        chances = [self._events[0]] if self._events else []
        for queue in self._queues:
            if (ready_ns := queue.ready_ns) is None:
                continue
            if not any(other.device == queue.device for other in self._sent):
                at_ns = max(self._now_ns, ready_ns, self.hardware.devices.free_ns(queue.device))
                chances.append(_Event(at_ns, _DISPATCH, queue.place, queue.send))
        return min(chances, default=None)

    def _schedule(self, at_ns: int, kind: int, run: Callable[[], Any]) -> _Event:
        event = _Event(at_ns, kind, next(self._numbers), run)
        heapq.heappush(self._events, event)
        return event

    def _look_in(self, wait_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(wait_s, self._look_soon)
