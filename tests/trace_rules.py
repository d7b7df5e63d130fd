"""What the Chrome trace event format asks of a file, and what ours promises beyond it.

Read from the format's description, not from what writes ours: "Trace Event Format",
https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from math import isfinite
from typing import Any

Event = Mapping[str, Any]
_METADATA = {"process_name": "name", "process_sort_index": "sort_index", "thread_name": "name"}
_METADATA |= {"thread_sort_index": "sort_index"}


_FIELDS = {"ph", "name", "ts", "pid", "tid"}  # of every event here; what more its phase asks for:
_MORE = {"M": {"args"}, "X": {"cat", "dur", "args"}, "b": {"cat", "id", "args"}, "e": {"cat", "id"}, "i": {"cat", "s"}}
_MORE |= {"s": {"cat", "id"}, "f": {"cat", "id", "bp"}}


def read(text: str) -> dict[str, Any]:
    """As a strict reader takes it: NaN and infinity are no JSON."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    told: dict[str, Any] = json.loads(text, parse_constant=refuse)
    return told


def ns(microseconds: float) -> int:
    return round(microseconds * 1e3)


def span(event: Event) -> tuple[int, int]:
    """Of a block, in ns."""
    begin_ns = ns(event["ts"])
    return begin_ns, begin_ns + ns(event["dur"])


def blocks(told: Mapping[str, Any], pid: int) -> list[Event]:
    return [event for event in told["traceEvents"] if event["ph"] == "X" and event["pid"] == pid]


def lanes(told: Mapping[str, Any], pid: int) -> dict[int, str]:
    """Names of a process's threads."""
    named = (e for e in told["traceEvents"] if e["name"] == "thread_name" and e["pid"] == pid)
    return {event["tid"]: event["args"]["name"] for event in named}


def busy_ns(told: Mapping[str, Any], pid: int) -> dict[str, int]:
    """By lane: what its blocks sum to."""
    busy = Counter(dict.fromkeys(lanes(told, pid).values(), 0))
    for block in blocks(told, pid):
        begin_ns, end_ns = span(block)
        busy[lanes(told, pid)[block["tid"]]] += end_ns - begin_ns
    return dict(busy)


def arrows(told: Mapping[str, Any], pid: int) -> list[tuple[Event, Event]]:
    """The blocks that each arrow joins."""
    events = [event for event in told["traceEvents"] if event["pid"] == pid]
    targets = {event["id"]: event for event in events if event["ph"] == "f"}
    return [(_holder(e, events), _holder(targets[e["id"]], events)) for e in events if e["ph"] == "s"]


def check(told: Mapping[str, Any]) -> None:
    events: Sequence[Event] = told["traceEvents"]
    assert told["displayTimeUnit"] in ("ms", "ns")
    for event in events:
        _check_event(event)
    for pid in {event["pid"] for event in events}:
        own = [event for event in events if event["pid"] == pid]
        assert sum(event["name"] == "process_name" for event in own) == 1
        named = [event["tid"] for event in own if event["name"] == "thread_name"]
        assert len(named) == len(set(named))
        assert {event["tid"] for event in own if event["ph"] != "M"} <= lanes(told, pid).keys()
        times = [event["ts"] for event in own if event["ph"] != "M"]
        assert times == sorted(times)
        for lane in lanes(told, pid):
            spans = sorted(span(block) for block in blocks(told, pid) if block["tid"] == lane)
            assert all(end <= begin for (_, end), (begin, _) in pairwise(spans)), "blocks of a lane overlap"
    _check_pairs(events, "b", "e")
    _check_pairs(events, "s", "f")
    for event in events:
        if event["ph"] in "sf":
            _holder(event, events)


def _check_event(event: Event) -> None:
    assert event.keys() == _FIELDS | _MORE[event["ph"]]
    assert all(isinstance(event[field], str) and event[field] for field in ("name", "cat") if field in event)
    assert all(type(event[field]) is int for field in ("pid", "tid"))
    assert isfinite(event["ts"])
    assert event["ts"] >= 0
    match event["ph"]:
        case "M":
            assert _METADATA[event["name"]] in event["args"]
        case "X":
            assert isfinite(event["dur"])
            assert event["dur"] >= 0
        case "i":
            assert event["s"] in "gpt"
        case "f":
            assert event["bp"] == "e"


def _check_pairs(events: Iterable[Event], first: str, second: str) -> None:
    """Ids are unique in the file; each pair has one name and category, and its end comes no earlier than its begin."""
    ones = {event["id"]: event for event in events if event["ph"] == first}
    others = {event["id"]: event for event in events if event["ph"] == second}
    counted = Counter(event["ph"] for event in events)
    assert ones.keys() == others.keys()
    assert (counted[first], counted[second]) == (len(ones), len(others))
    for number, one in ones.items():
        other = others[number]
        assert all(one[field] == other[field] for field in ("name", "cat", "pid"))
        assert one["ts"] <= other["ts"]


def _holder(event: Event, events: Iterable[Event]) -> Event:
    """The block that an arrow's end is bound to: the one that holds its time; of two that touch, that which begins."""
    at_ns = ns(event["ts"])
    lane = [e for e in events if e["ph"] == "X" and (e["pid"], e["tid"]) == (event["pid"], event["tid"])]
    held = [block for block in lane if span(block)[0] <= at_ns < max(span(block)[1], span(block)[0] + 1)]
    assert len(held) == 1, "an arrow hangs in the air"
    return held[0]
