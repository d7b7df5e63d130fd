"""What a profile says in numbers. A table is a title, the heads of its columns, and rows of text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hetspec_client.observe.profile import Operator, Profile


@dataclass(frozen=True, slots=True)
class Table:
    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def tables(profile: Profile) -> list[Table]:
    """Those that have something to say."""
    found = [_operators(profile), _kinds(profile), _waits(profile), _bytes(profile), _counters(profile)]
    return [table for table in found if table.rows]


def busy_ns(profile: Profile) -> float:
    """Computing tasks, in the window."""
    return profile.grown("hetspec_unit_busy_seconds_total") * 1e9


def _operators(profile: Profile) -> Table:
    """Shares are of the tasks' time. What is not in an operator is Python, between and around the passes."""
    busy = busy_ns(profile)
    rows = [_operator(operator, busy) for operator in profile.operators]
    between = busy - sum(operator.ns for operator in profile.operators)
    if rows and busy:
        rows.append(("", "outside operators", f"{between / 1e6:.1f}", f"{between / busy:.1%}", *("",) * 5))
    heads = ("pass", "operator", "ms", "share", "calls", "us a call", "rows", "GMAC/s", "GB/s read")
    return Table("Operators", heads, tuple(rows))


def _operator(operator: Operator, busy: float) -> tuple[str, ...]:
    ns = max(operator.ns, 1)
    return (
        operator.group,
        operator.name,
        f"{ns / 1e6:.1f}",
        f"{ns / busy:.1%}" if busy else "",
        str(operator.calls),
        f"{ns / operator.calls / 1e3:.1f}",
        str(operator.rows),
        f"{operator.macs / ns:.2f}" if operator.macs else "",
        f"{operator.read_bytes / ns:.2f}" if operator.read_bytes else "",
    )


def _kinds(profile: Profile) -> Table:
    def row(kind: str, tasks: float) -> tuple[str, ...]:
        seconds, items, rows = (
            profile.grown(f"hetspec_task_{what}_sum", kind=kind) for what in ("seconds", "items", "rows")
        )
        return (
            kind,
            f"{tasks:.0f}",
            f"{seconds * 1e3:.1f}",
            f"{seconds / profile.window_s:.1%}",
            f"{seconds / tasks * 1e3:.2f}",
            f"{items / tasks:.2f}",
            f"{rows / tasks:.2f}",
            f"{rows / seconds:.0f}" if seconds else "",
        )

    kinds = profile.grown_by("hetspec_task_seconds_count", "kind")
    heads = ("task", "count", "ms", "of the window", "ms each", "items each", "rows each", "rows/s")
    return Table("Time by task", heads, tuple(row(kind, tasks) for kind, tasks in kinds.items()))


def _waits(profile: Profile) -> Table:
    """The mean counts every task; percentiles are of those that were told one by one."""
    count = profile.grown("hetspec_queue_wait_seconds_count")
    if not count or not profile.tasks:
        return Table("Queue wait", (), ())
    waits = sorted(task.queue_ns / 1e6 for task in profile.tasks)
    mean = profile.grown("hetspec_queue_wait_seconds_sum") / count * 1e3
    told = (mean, _percentile(waits, 0.5), _percentile(waits, 0.99), waits[-1])
    heads = ("tasks", "mean ms", "p50 ms", "p99 ms", "longest ms")
    return Table("Queue wait", heads, ((f"{count:.0f}", *(f"{ms:.2f}" for ms in told)),))


def _percentile(ordered: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of them does not exceed."""
    return ordered[max(0, -(-int(share * 1e6) * len(ordered) // 10**6) - 1)]


def _bytes(profile: Profile) -> Table:
    moved = (
        ("tasks in", "hetspec_unit_received_bytes_total"),
        ("results out", "hetspec_unit_sent_bytes_total"),
        ("weights from the store", "hetspec_weights_read_bytes_total"),
        ("weights to units", "hetspec_store_served_bytes_total"),
    )
    found = [(name, profile.grown(metric)) for name, metric in moved]
    rows = [(name, f"{n / 1e3:.1f}", f"{n / profile.window_s / 1e3:.1f}") for name, n in found if n]
    return Table("Bytes moved", ("", "kB", "kB/s"), tuple(rows))


def _counters(profile: Profile) -> Table:
    """Of a service without tasks: whatever it counts."""
    if profile.tasks or profile.operators:
        return Table("Counters", (), ())
    return Table("Counters", ("", "grew by"), tuple(_changes(profile)))


def _changes(profile: Profile) -> Iterator[tuple[str, str]]:
    for change in profile.metrics:
        if change.name.startswith("hetspec_") and not change.name.endswith("_bucket"):
            labels = ", ".join(f"{name} {value}" for name, value in change.labels.items())
            yield f"{change.name}{f' ({labels})' if labels else ''}", f"{change.value:.6g}"
