"""The Chrome trace event format, which Perfetto and chrome://tracing open: "Trace Event Format",
https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Event = dict[str, Any]
_ORDER = {"s": 1, "f": 1, "i": 2}  # of events at the same time: Perfetto binds an arrow to what has begun last


@dataclass(frozen=True, slots=True)
class Block:
    """A time in which a lane is held."""

    lane: str
    begin_ns: int
    end_ns: int


class Process:
    """An axis of time. lanes: its threads, in order. Times are told since origin_ns, in microseconds."""

    def __init__(self, pid: int, name: str, lanes: Sequence[str], origin_ns: int, ids: Iterator[int]) -> None:
        """ids: of waits and arrows, unlike those of other processes."""
        self._pid = pid
        self._name = name
        self._threads = {lane: number for number, lane in enumerate(lanes, 1)}
        self._origin_ns = origin_ns
        self._ids = ids
        self._events: list[Event] = []
        self._arrows: list[tuple[Block, Block, str, int]] = []
        self._instants: list[tuple[str, int]] = []

    def block(self, block: Block, name: str, category: str, args: Mapping[str, Any]) -> None:
        duration_us = (block.end_ns - block.begin_ns) / 1e3
        self._add("X", block.lane, block.begin_ns, name, category, dur=duration_us, args=args)

    def wait(self, block: Block, cause: str) -> None:
        """Waits overlap each other, and what is computed meanwhile. Perfetto draws a row for every name: one a lane."""
        number, name = next(self._ids), f"wait: {block.lane}"
        self._add("b", block.lane, block.begin_ns, name, "queue", id=number, args={"cause": cause})
        self._add("e", block.lane, block.end_ns, name, "queue", id=number)

    def instant(self, lane: str, at_ns: int, name: str) -> None:
        self._add("i", lane, at_ns, name, "mark", s="t")
        self._instants.append((lane, at_ns))

    def arrow(self, source: Block, target: Block, name: str) -> None:
        """From the last moment of one, before any instant in it, to which Perfetto would bind it, to the first of the
        other. None from what took no time: a reader would bind it to the block that begins there."""
        if source.begin_ns < source.end_ns:
            self._arrows.append((source, target, name, next(self._ids)))

    def events(self) -> Iterator[Event]:
        """In the order of their times."""
        yield self._meta("process_name", 0, name=self._name)
        yield self._meta("process_sort_index", 0, sort_index=self._pid)
        for lane, thread in self._threads.items():
            yield self._meta("thread_name", thread, name=lane)
            yield self._meta("thread_sort_index", thread, sort_index=thread)
        events = [*self._events, *self._arrow_events()]
        yield from sorted(events, key=lambda event: (event["ts"], _ORDER.get(event["ph"], 0)))

    def _arrow_events(self) -> Iterator[Event]:
        instants: dict[str, list[int]] = {lane: [] for lane in self._threads}
        for lane, at_ns in sorted(self._instants):
            instants[lane].append(at_ns)
        for source, target, name, number in self._arrows:
            first = bisect_left(instants[source.lane], source.begin_ns)
            at_ns = min([source.end_ns - 1, *instants[source.lane][first : first + 1]])
            yield self._event("s", source.lane, at_ns, name, "flow", id=number)
            yield self._event("f", target.lane, target.begin_ns, name, "flow", id=number, bp="e")

    def _add(self, phase: str, lane: str, at_ns: int, name: str, category: str, **more: Any) -> None:
        self._events.append(self._event(phase, lane, at_ns, name, category, **more))

    def _event(self, phase: str, lane: str, at_ns: int, name: str, category: str, **more: Any) -> Event:
        ts, tid = (at_ns - self._origin_ns) / 1e3, self._threads[lane]
        return {"ph": phase, "name": name, "cat": category, "ts": ts, "pid": self._pid, "tid": tid} | more

    def _meta(self, what: str, thread: int, **args: Any) -> Event:
        return {"ph": "M", "name": what, "ts": 0, "pid": self._pid, "tid": thread, "args": args}
