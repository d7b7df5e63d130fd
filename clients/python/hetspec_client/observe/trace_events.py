"""The tasks of a unit as Chrome trace events, which Perfetto opens: when each waited and when it was computed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hetspec_client.observe.flame_svg import title
from hetspec_client.observe.profile import Profile, Task

_PROCESS, _ENGINE = 1, 1
_Event = dict[str, Any]


def trace_events(profile: Profile) -> dict[str, Any]:
    """Times in microseconds of the unit's monotonic clock. Waits overlap, and so are asynchronous events."""
    events = [*_names(profile), *(event for number, task in enumerate(profile.tasks) for event in _task(number, task))]
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"service": title(profile)}}


def _names(profile: Profile) -> Iterator[_Event]:
    yield {"ph": "M", "name": "process_name", "pid": _PROCESS, "args": {"name": title(profile)}}
    yield {"ph": "M", "name": "thread_name", "pid": _PROCESS, "tid": _ENGINE, "args": {"name": "engine"}}


def _task(number: int, task: Task) -> Iterator[_Event]:
    start_us = task.start_ns / 1e3
    common = {"pid": _PROCESS, "tid": _ENGINE}
    waits = {"name": "queue wait", "cat": "queue", "id": number, **common}
    yield {**waits, "ph": "b", "ts": start_us - task.queue_ns / 1e3, "args": {"kind": task.kind}}
    yield {**waits, "ph": "e", "ts": start_us}
    args = {
        "outcome": task.outcome,
        "queue_ms": task.queue_ns / 1e6,
        "items": task.items,
        "rows": task.rows,
        "bytes_in": task.bytes_in,
        "bytes_out": task.bytes_out,
        "weight_bytes_read": task.weight_bytes_read,
    }
    yield {
        "name": task.kind,
        "cat": "task",
        "ph": "X",
        "ts": start_us,
        "dur": task.compute_ns / 1e3,
        **common,
        "args": args,
    }
