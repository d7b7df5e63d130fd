"""The Chrome trace event format, which Perfetto and chrome://tracing open: "Trace Event Format",
https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Event = dict[str, Any]
_LAST = {"s": 1, "f": 1}  # of events at the same time: an arrow is bound to the block that has begun


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

    def block(self, block: Block, name: str, category: str, args: Mapping[str, Any]) -> None:
        duration_us = (block.end_ns - block.begin_ns) / 1e3
        self._add("X", block.lane, block.begin_ns, name, category, dur=duration_us, args=args)

    def wait(self, block: Block, name: str) -> None:
        """Waits overlap each other, and what is computed meanwhile."""
        number = next(self._ids)
        self._add("b", block.lane, block.begin_ns, name, "queue", id=number)
        self._add("e", block.lane, block.end_ns, name, "queue", id=number)

    def instant(self, lane: str, at_ns: int, name: str) -> None:
        self._add("i", lane, at_ns, name, "mark", s="t")

    def arrow(self, source: Block, target: Block, name: str) -> None:
        """From the last moment of one to the first of the other. None from what took no time: a reader would bind it to
        the block that begins there."""
        if source.begin_ns == source.end_ns:
            return
        number = next(self._ids)
        self._add("s", source.lane, source.end_ns - 1, name, "flow", id=number)
        self._add("f", target.lane, target.begin_ns, name, "flow", id=number, bp="e")

    def events(self) -> Iterator[Event]:
        """In the order of their times."""
        yield self._meta("process_name", 0, name=self._name)
        yield self._meta("process_sort_index", 0, sort_index=self._pid)
        for lane, thread in self._threads.items():
            yield self._meta("thread_name", thread, name=lane)
            yield self._meta("thread_sort_index", thread, sort_index=thread)
        yield from sorted(self._events, key=lambda event: (event["ts"], _LAST.get(event["ph"], 0)))

    def _add(self, phase: str, lane: str, at_ns: int, name: str, category: str, **more: Any) -> None:
        ts, tid = (at_ns - self._origin_ns) / 1e3, self._threads[lane]
        self._events.append({"ph": phase, "name": name, "cat": category, "ts": ts, "pid": self._pid, "tid": tid} | more)

    def _meta(self, what: str, thread: int, **args: Any) -> Event:
        return {"ph": "M", "name": what, "ts": 0, "pid": self._pid, "tid": thread, "args": args}
