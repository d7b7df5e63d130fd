"""What a task costs, every component apart, so that it can be explained and adds up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum


class Component(StrEnum):
    """Where time and energy go. Of time, each nanosecond belongs to what the device was held up by."""

    COMPUTE = "compute"
    MEMORY = "memory"  # DRAM or on-chip memory, weights and KV
    FLASH = "flash"  # of time: waiting for weights from flash
    LAUNCH = "launch"
    TRANSFER = "transfer"  # activations between devices
    REBUILD = "rebuild"  # what was computed before already, for a unit that lost it
    IDLE = "idle"


@dataclass(frozen=True, slots=True)
class Use:
    """Energy by device (a memory and the flash are devices too) and component, in picojoules."""

    device: str
    component: Component
    energy_pj: int


@dataclass(frozen=True, slots=True)
class Part:
    """A number behind a cost: so much of something at a rate. alone_ns: what it takes if nothing else holds it up; of
    arithmetic and memory that work at once, only the longer one shows in a cost's time.

    unit: of `amount`: operations, bytes, graphs, hops, reads. per_second: 0 where the time is a fixed one of each.
    """

    component: Component
    device: str
    what: str
    amount: int
    unit: str
    per_second: int
    alone_ns: int


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one task, which holds `device` from its start to its end.

    time_ns: by component, exclusive of each other: their sum is the duration. uses: dynamic energy; static power is the
    clock's to charge, by the time that passes. flash_busy_ns: the flash's own time, hidden or not, also what it read
    before the task began; flash_ready_ns: from the task's start until the flash can read for the next pass.
    channel_bytes: moved over each memory's channel. parts: the numbers that time and energy follow from.
    """

    device: str
    time_ns: Mapping[Component, int]
    uses: Sequence[Use] = ()
    flash_busy_ns: int = 0
    flash_ready_ns: int = 0
    channel_bytes: Mapping[str, int] = field(default_factory=dict)
    parts: Sequence[Part] = ()

    @property
    def duration_ns(self) -> int:
        return sum(self.time_ns.values())

    @property
    def energy_pj(self) -> int:
        return sum(use.energy_pj for use in self.uses)


def split(total: int, shares: Sequence[int]) -> list[int]:
    """`total` in parts as the shares are, whole and of the same sum: largest remainders first, then the earlier.

    Where all shares are 0 they count as equal. Raises ValueError without shares or with a negative one.
    """
    if not shares or min(shares) < 0:
        raise ValueError(f"shares = {list(shares)}, must be at least one, none negative")
    weights = shares if sum(shares) else [1] * len(shares)
    whole = sum(weights)
    parts = [total * weight // whole for weight in weights]
    remainders = sorted(range(len(weights)), key=lambda i: (-(total * weights[i] % whole), i))
    for i in remainders[: total - sum(parts)]:
        parts[i] += 1
    return parts
