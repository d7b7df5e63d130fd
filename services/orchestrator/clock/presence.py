"""A session's stay in an emulated world: what was done for it, how long it took, what it cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field

from hetspec.hardware.cost import Component, Cost, Use
from orchestrator.clock.devices import Span
from orchestrator.timeline.task import Task

Key = tuple[str, str]  # device, component


@dataclass(frozen=True, slots=True)
class Charge:
    """A session's part of one task. uses: its share by rows, of a task of `pass_rows`; cost: of the whole task.

    The session waited from arrived_ns to start_ns for the device, and to end_ns for the task.
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

    @property
    def end_ns(self) -> int:
        return self.start_ns + self.cost.duration_ns


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
        """By device and component; with "waited", for a device that others held, and "overlapped", negative, where two
        tasks ran at once: the sum is total_ns."""
        spent: Counter[Key] = Counter()
        for charge in self.charges:
            for component, ns in charge.cost.time_ns.items():
                spent[charge.cost.device, component] += ns
            spent[charge.cost.device, "waited"] += charge.start_ns - charge.arrived_ns
        spent["", "overlapped"] = self.total_ns - spent.total()
        return Counter({key: ns for key, ns in spent.items() if ns})

    def energy_pj(self) -> Counter[Key]:
        spent: Counter[Key] = Counter()
        for charge in self.charges:
            for use in charge.uses:
                spent[use.device, use.component] += use.energy_pj
        for device, pj in self.static_pj.items():
            spent[device, Component.IDLE] += pj
        return spent


PRESENT: ContextVar[Presence | None] = ContextVar("present", default=None)
"""The session that a task of the event loop works for."""


def present() -> Presence:
    """Only a session that is in the world may ask it for anything."""
    presence = PRESENT.get()
    assert presence is not None
    return presence
