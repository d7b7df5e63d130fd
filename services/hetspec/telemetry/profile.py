"""What a profile of a service comes to."""

from __future__ import annotations

from dataclasses import dataclass

MIN_SECONDS, MAX_SECONDS = 1, 60


def check_seconds(seconds: int) -> None:
    """Raises ValueError."""
    if not MIN_SECONDS <= seconds <= MAX_SECONDS:
        raise ValueError(f"seconds = {seconds}, must be in [{MIN_SECONDS}, {MAX_SECONDS}]")


@dataclass(frozen=True, slots=True)
class Stack:
    """How often a thread was seen at one place. frames: outermost first, each "function (file:line)"."""

    thread: str
    frames: tuple[str, ...]
    samples: int


@dataclass(frozen=True, slots=True)
class Sampler:
    """What looked at the stacks. note: why it was not py-spy. rate_hz: samples a second, of each busy thread."""

    name: str
    rate_hz: float
    note: str = ""


@dataclass(frozen=True, slots=True)
class OperatorTotal:
    """What one operator of a model's native passes came to.

    ns: host time of the pass's first thread. rows, macs (multiply-adds), read_bytes: of all threads. read_bytes counts
    weights once a call; for attention, keys and values once a row.
    """

    group: str  # "layers", "head", "features"
    name: str
    ns: int
    calls: int
    rows: int
    macs: int = 0
    read_bytes: int = 0

    def since(self, earlier: OperatorTotal) -> OperatorTotal:
        return OperatorTotal(
            self.group,
            self.name,
            self.ns - earlier.ns,
            self.calls - earlier.calls,
            self.rows - earlier.rows,
            self.macs - earlier.macs,
            self.read_bytes - earlier.read_bytes,
        )


@dataclass(frozen=True, slots=True)
class MetricChange:
    """By how much a sample of a Prometheus counter or histogram grew."""

    name: str
    labels: dict[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class TaskSpan:
    """A task that ended in the window. start_ns: of its computing, on the monotonic clock."""

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
class Profile:
    """start_ns, end_ns: the window, on the service's monotonic clock; a unit's begins and ends between two tasks.

    tasks: in order; the newest, where they were too many: `tasks_dropped` says how many are missing.
    """

    sampler: Sampler
    start_ns: int
    end_ns: int
    stacks: tuple[Stack, ...]
    operators: tuple[OperatorTotal, ...] = ()
    metrics: tuple[MetricChange, ...] = ()
    tasks: tuple[TaskSpan, ...] = ()
    tasks_dropped: int = 0
