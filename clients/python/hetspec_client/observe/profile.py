"""A service's profile, as POST /v1/hetspec/profile answers it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from hetspec_client.observe.service import Service


@dataclass(frozen=True, slots=True)
class Stack:
    """How often a thread was seen at one place. frames: outermost first, "function (file:line)"."""

    thread: str
    frames: tuple[str, ...]
    samples: int


@dataclass(frozen=True, slots=True)
class Operator:
    """Of the native passes: host time of their first thread, work of all their threads."""

    group: str
    name: str
    ns: int
    calls: int
    rows: int
    macs: int
    read_bytes: int


@dataclass(frozen=True, slots=True)
class Task:
    """One that ended in the window. start_ns: of its computing, on the service's monotonic clock."""

    kind: str
    outcome: str
    start_ns: int
    queue_ns: int
    compute_ns: int
    items: int
    rows: int
    bytes_in: int
    bytes_out: int
    weight_bytes_read: int


@dataclass(frozen=True, slots=True)
class MetricChange:
    """By how much a sample of a Prometheus counter or histogram grew."""

    name: str
    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class Profile:
    """sampler: "py-spy" or "in-process"; note: why not py-spy. raw: the whole answer."""

    service: Service
    sampler: str
    note: str
    rate_hz: float
    start_ns: int
    end_ns: int
    stacks: tuple[Stack, ...]
    operators: tuple[Operator, ...]
    tasks: tuple[Task, ...]
    tasks_dropped: int
    metrics: tuple[MetricChange, ...]
    raw: Mapping[str, Any]

    @classmethod
    def parse(cls, told: Mapping[str, Any]) -> Self:
        return cls(
            service=Service.parse(told["service"]),
            sampler=told["sampler"]["name"],
            note=told["sampler"]["note"],
            rate_hz=told["sampler"]["rate_hz"],
            start_ns=told["start_ns"],
            end_ns=told["end_ns"],
            stacks=tuple(Stack(s["thread"], tuple(s["frames"]), s["samples"]) for s in told["stacks"]),
            operators=tuple(Operator(**operator) for operator in told["operators"]),
            tasks=tuple(Task(**task) for task in told["tasks"]),
            tasks_dropped=told["tasks_dropped"],
            metrics=tuple(MetricChange(**change) for change in told["metrics"]),
            raw=told,
        )

    @property
    def window_s(self) -> float:
        return (self.end_ns - self.start_ns) * 1e-9

    @property
    def samples(self) -> int:
        return sum(stack.samples for stack in self.stacks)

    def grown(self, name: str, **labels: str) -> float:
        """By how much all samples of this name that carry these labels grew together."""
        return sum(m.value for m in self.metrics if m.name == name and labels.items() <= m.labels.items())

    def grown_by(self, name: str, label: str) -> dict[str, float]:
        """The same by one label's value."""
        values = sorted({m.labels[label] for m in self.metrics if m.name == name and label in m.labels})
        return {value: self.grown(name, **{label: value}) for value in values}
