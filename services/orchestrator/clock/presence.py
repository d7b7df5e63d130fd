"""A session's stay in an emulated world: what was done for it, how long it took, what it cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import chain

from hetspec.hardware.cost import Component, Cost, Use
from orchestrator.clock.devices import Span
from orchestrator.timeline.task import Task

Key = tuple[str, str]  # device, component
REQUEST = "request"
"""Stands where a device would, for time that no device accounts for."""


@dataclass(frozen=True, slots=True)
class Charge:
    """A session's part of one task. uses: its share by rows, of a task of `pass_rows`; cost: of the whole task.

    The session waited from arrived_ns to start_ns for the device, and to end_ns for the task. head_rows: that the whole
    task took through a head.
    """

    role: str
    round: int
    arrived_ns: int
    start_ns: int
    rows: int
    pass_rows: int
    cost: Cost
    uses: tuple[Use, ...]
    task: Task | None = None  # what for
    head_rows: int = 0

    @property
    def end_ns(self) -> int:
        return self.start_ns + self.cost.duration_ns

    @property
    def pass_key(self) -> tuple[int, int]:
        """The same for all charges of one task: they share its cost."""
        return self.start_ns, id(self.cost)


@dataclass(slots=True)
class Presence:
    """number: orders sessions that do something at the same time."""

    number: int
    arrival_ns: int
    end_ns: int = 0
    round: int = 0
    charges: list[Charge] = field(default_factory=list)
    token_ns: list[int] = field(default_factory=list)  # since arrival, of each token given out
    static_pj: Counter[str] = field(default_factory=Counter)  # by device, while the session was there
    busy_ns: Mapping[str, int] = field(default_factory=dict)  # of each device, meanwhile
    busy_spans: Mapping[str, Sequence[Span]] = field(default_factory=dict)  # likewise, when
    lag_ns: int = 0  # at most, behind the pace
    plain_ns: int = 0  # of plain decoding of the same tokens, alone

    def emitted(self, tokens: int, now_ns: int) -> None:
        self.token_ns += [now_ns - self.arrival_ns] * tokens

    @property
    def total_ns(self) -> int:
        return self.end_ns - self.arrival_ns

    def time_ns(self) -> Counter[Key]:
        """See `time_of`. The sum is total_ns."""
        return time_of([self])

    def energy_pj(self) -> Counter[Key]:
        spent: Counter[Key] = Counter()
        for charge in self.charges:
            for use in charge.uses:
                spent[use.device, use.component] += use.energy_pj
        for device, pj in self.static_pj.items():
            spent[device, Component.IDLE] += pj
        return spent


def time_of(presences: Sequence[Presence]) -> Counter[Key]:
    """What the time of sessions, that are one request's, went on, from the first arrival to the last end, which is its
    sum. By device and component: what each task took, once, whichever of them share it, and "waited", while the device
    was held by another. By REQUEST: "overlapped", never positive, for tasks and waits that ran at once, or on after the
    end; and "waited", never negative, with neither: for what another request reads, which this one begins with too.
    """
    spent, spans = Counter[Key](), list[Span]()
    for arrived_ns, charge in _tasks(presences):
        for component, ns in charge.cost.time_ns.items():
            spent[charge.cost.device, component] += ns
        spent[charge.cost.device, "waited"] += charge.start_ns - arrived_ns
        spans.append((arrived_ns, charge.end_ns))
    begin_ns = min(presence.arrival_ns for presence in presences)
    end_ns = max(presence.end_ns for presence in presences)
    covered_ns = sum(_new_ns(spans, begin_ns, end_ns))
    spent[REQUEST, "overlapped"] = covered_ns - spent.total()
    spent[REQUEST, "waited"] = end_ns - begin_ns - covered_ns
    return Counter({key: ns for key, ns in spent.items() if ns})


def _tasks(presences: Sequence[Presence]) -> Iterator[tuple[int, Charge]]:
    """Each once, with the moment since which any of the sessions has waited for it."""
    tasks: dict[tuple[int, int], list[Charge]] = {}
    for charge in chain.from_iterable(presence.charges for presence in presences):
        tasks.setdefault(charge.pass_key, []).append(charge)
    for charges in tasks.values():
        yield min(charge.arrived_ns for charge in charges), charges[0]


def _new_ns(spans: Sequence[Span], begin_ns: int, end_ns: int) -> Iterator[int]:
    """Of each span, in the order of their beginnings, what none before it covers: their sum is what all cover."""
    reached_ns = begin_ns
    for since_ns, until_ns in sorted(spans):
        yield max(0, min(until_ns, end_ns) - max(since_ns, reached_ns))
        reached_ns = max(reached_ns, until_ns)


PRESENT: ContextVar[Presence | None] = ContextVar("present", default=None)
"""The session that a task of the event loop works for."""


def present() -> Presence:
    """Only a session that is in the world may ask it for anything."""
    presence = PRESENT.get()
    assert presence is not None
    return presence
