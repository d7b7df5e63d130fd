"""What Prometheus reads of a verifier, drafter or sampler. docs/observability.md lists every metric."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.metrics_core import GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from hetspec.telemetry.registry import new_registry
from hetspec.telemetry.task_record import TaskKind, TaskRecord

_WAIT_SECONDS = (0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_TASK_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_ITEMS = (1, 2, 4, 8, 16, 32, 64)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096)
_SECOND_NS = 1e-9


class UnitMetrics:
    """Updated by the unit's queue when a task ends, read by whoever scrapes. Thread-safe; about 20 µs a task."""

    def __init__(self, unit: str) -> None:
        self.unit = unit
        self.registry = registry = new_registry()
        by_kind = ("unit", "kind")

        def counter(name: str, text: str) -> Counter:
            return Counter(name, text, ("unit",), registry=registry).labels(unit)

        self._queue_wait = Histogram(
            "hetspec_queue_wait_seconds",
            "From a task's arrival at the unit to its start.",
            ("unit",),
            registry=registry,
            buckets=_WAIT_SECONDS,
        ).labels(unit)
        self._seconds = Histogram(
            "hetspec_task_seconds", "Computing, a task.", by_kind, registry=registry, buckets=_TASK_SECONDS
        )
        self._items = Histogram("hetspec_task_items", "Items of a task.", by_kind, registry=registry, buckets=_ITEMS)
        self._rows = Histogram(
            "hetspec_task_rows", "Rows that a task computed.", by_kind, registry=registry, buckets=_ROWS
        )
        self._tasks = Counter("hetspec_tasks", "Tasks answered, by outcome.", (*by_kind, "outcome"), registry=registry)
        self._refusals = Counter(
            "hetspec_unit_refusals",
            "Items, and whole tasks, answered with an error.",
            ("unit", "code"),
            registry=registry,
        )
        self._busy = counter("hetspec_unit_busy_seconds", "Computing, all tasks.")
        self._received = counter("hetspec_unit_received_bytes", "Of tasks.")
        self._sent = counter("hetspec_unit_sent_bytes", "Of results.")
        self._weight_bytes = counter("hetspec_weights_read_bytes", "Weights read from the store during tasks.")
        self._weight_reads = counter("hetspec_weight_reads", "Reads of weights during tasks.")
        self._by_kind: dict[TaskKind, tuple[Histogram, Histogram, Histogram]] = {}
        self._by_outcome: dict[tuple[TaskKind, str], Counter] = {}

    def task_ended(self, record: TaskRecord) -> None:
        compute_s = record.compute_ns * _SECOND_NS
        seconds, items, rows = self._of_kind(record.kind)
        self._queue_wait.observe(record.queue_ns * _SECOND_NS)
        seconds.observe(compute_s)
        items.observe(record.items)
        rows.observe(record.rows)
        self._of_outcome(record.kind, record.outcome).inc()
        self._busy.inc(compute_s)
        self._received.inc(record.bytes_in)
        self._sent.inc(record.bytes_out)
        if record.trace.weight_reads:
            self._weight_bytes.inc(record.trace.weight_bytes_read)
            self._weight_reads.inc(record.trace.weight_reads)
        for code in record.refusals:
            self.refused(code)

    def refused(self, code: str) -> None:
        self._refusals.labels(self.unit, code).inc()

    def watch_queue(self, running: Callable[[], int], queued: Callable[[], int]) -> None:
        for name, text, count in (
            ("hetspec_tasks_running", "Tasks being computed: 0 or 1.", running),
            ("hetspec_tasks_queued", "Tasks that wait for the unit.", queued),
        ):
            Gauge(name, text, ("unit",), registry=self.registry).labels(self.unit).set_function(count)

    def watch_units(self, descriptions: Mapping[str, Callable[[], Any]]) -> None:
        """By unit, what answers Describe: of this one, and of those that its process serves beside it. Asked at every
        scrape, from the scraper's thread."""
        self.registry.register(_Descriptions(descriptions))

    # A lookup among labels takes as long as the update itself: each child is looked up once.

    def _of_kind(self, kind: TaskKind) -> tuple[Histogram, Histogram, Histogram]:
        if (found := self._by_kind.get(kind)) is None:
            seconds, items, rows = (each.labels(self.unit, kind) for each in (self._seconds, self._items, self._rows))
            found = self._by_kind[kind] = (seconds, items, rows)
        return found

    def _of_outcome(self, kind: TaskKind, outcome: str) -> Counter:
        if (found := self._by_outcome.get((kind, outcome))) is None:
            found = self._by_outcome[kind, outcome] = self._tasks.labels(self.unit, kind, outcome)
        return found


class _Descriptions(Collector):
    """What units hold now, where their kind holds such a thing at all."""

    _GAUGES = (
        ("sessions", "hetspec_unit_sessions", "Sessions open."),
        ("kv_held_tokens", "hetspec_kv_held_tokens", "KV positions held by sessions."),
        ("kv_capacity_tokens", "hetspec_kv_capacity_tokens", "KV positions there are."),
        ("weights_resident_bytes", "hetspec_weights_resident_bytes", "Layers in memory, read buffers included."),
    )

    def __init__(self, descriptions: Mapping[str, Callable[[], Any]]) -> None:
        self._descriptions = descriptions

    def collect(self) -> Iterator[Metric]:
        told = {unit: describe() for unit, describe in self._descriptions.items()}
        for field, name, text in self._GAUGES:
            gauge = GaugeMetricFamily(name, text, labels=("unit",))
            for unit, description in told.items():
                if field in description.DESCRIPTOR.fields_by_name:
                    gauge.add_metric((unit,), getattr(description, field))
            if gauge.samples:
                yield gauge
        info = InfoMetricFamily("hetspec_unit", "What the unit runs.", labels=("unit",))
        names = ("model", "fingerprint", "precision", "digest")
        for unit, description in told.items():
            info.add_metric((unit,), {name: getattr(description.identity, name) for name in names})
        yield info
