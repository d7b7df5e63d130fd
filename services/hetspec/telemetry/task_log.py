"""The tasks of a unit while somebody profiles it: the newest of them, one by one."""

from __future__ import annotations

from collections import deque

from hetspec.telemetry.profile import TaskSpan
from hetspec.telemetry.task_record import TaskRecord

CAPACITY = 20_000


class TaskLog:
    """Keeps nothing unless it is open. Tasks are added by one thread; any may open and close it."""

    def __init__(self) -> None:
        self._spans: deque[TaskSpan] | None = None
        self._added = 0

    def open(self) -> None:
        self._spans, self._added = deque(maxlen=CAPACITY), 0

    def close(self) -> tuple[tuple[TaskSpan, ...], int]:
        """The tasks since `open`, and how many older ones are missing."""
        spans, added = tuple(self._spans or ()), self._added
        self._spans, self._added = None, 0
        return spans, added - len(spans)

    def add(self, start_ns: int, record: TaskRecord) -> None:
        """start_ns: when it began to compute, on the monotonic clock."""
        if (spans := self._spans) is not None:
            self._added += 1
            spans.append(_span(start_ns, record))


def _span(start_ns: int, record: TaskRecord) -> TaskSpan:
    return TaskSpan(
        kind=record.kind.value,
        outcome=record.outcome,
        start_ns=start_ns,
        queue_ns=record.queue_ns,
        compute_ns=record.compute_ns,
        items=record.items,
        rows=record.rows,
        bytes_in=record.bytes_in,
        bytes_out=record.bytes_out,
        weight_bytes_read=record.trace.weight_bytes_read,
    )
