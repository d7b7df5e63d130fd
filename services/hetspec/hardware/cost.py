"""What a task costs, every component apart, so that it can be explained, adds up, and can be cut short."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import accumulate

_ATTO_PER_PICO = 10**6


class Component(StrEnum):
    """Where time and energy go. Of time, each nanosecond belongs to what the device was held up by."""

    COMPUTE = "compute"
    MEMORY = "memory"  # DRAM or on-chip memory, weights and KV
    FLASH = "flash"  # of time: waiting for weights from flash
    LAUNCH = "launch"
    TRANSFER = "transfer"  # activations between devices
    QUEUE = "queue"  # of time: waiting, within a task, for a unit of another device
    REBUILD = "rebuild"  # what was computed before already, for a unit that lost it
    IDLE = "idle"


@dataclass(frozen=True, slots=True)
class Use:
    """Energy by device (a memory and the flash are devices too) and component, in picojoules."""

    device: str
    component: Component
    energy_pj: int


@dataclass(frozen=True, slots=True)
class Number:
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


@dataclass(frozen=True, slots=True, eq=False)
class Meter:
    """Something that tasks use up: of which device, at which rate, at which energy each. is_channel: bytes that move
    over the device's, a memory's, channel. One object stands for one thing: it is looked up very often."""

    component: Component
    device: str
    what: str
    unit: str
    per_second: int
    energy_aj: int
    is_channel: bool = False


@dataclass(frozen=True, slots=True)
class Part:
    """A draft step or a layer: what holds the device up, by component, and what is used, by meter: how much, and what
    that takes alone. flash_ns: of the reads that begin in it; flash_left_ns: of all reads so far, after its end."""

    time_ns: Mapping[Component, int]
    used: Mapping[Meter, tuple[int, int]] = field(default_factory=dict)
    flash_ns: int = 0
    flash_left_ns: int = 0

    @property
    def duration_ns(self) -> int:
        return sum(self.time_ns.values())


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one task, which holds `device` from its start to its end.

    time_ns: by component, exclusive of each other: their sum is the duration. uses: dynamic energy; static power is the
    clock's to charge, by the time that passes. flash_busy_ns: the flash's own time, hidden or not, also what it read
    before the task began; flash_ready_ns: from the task's start until the flash can read for the next pass.
    channel_bytes: moved over each memory's channel.
    operator_ns: how long, on average, whoever comes meanwhile waits for the operator under way.
    parts: what all of these sum, one after another, each as often as it is repeated; none of a cost that has no parts.
    """

    device: str
    time_ns: Mapping[Component, int]
    uses: Sequence[Use] = ()
    flash_busy_ns: int = 0
    flash_ready_ns: int = 0
    channel_bytes: Mapping[str, int] = field(default_factory=dict)
    operator_ns: int = 0
    is_rebuild: bool = False
    parts: tuple[tuple[Part, int], ...] = field(default=(), repr=False, compare=False)

    @classmethod
    def of(
        cls,
        device: str,
        parts: Sequence[tuple[Part, int]],
        flash_ready_ns: int = 0,
        operator_ns: int = 0,
        is_rebuild: bool = False,
    ) -> Cost:
        """The sum of its parts. is_rebuild: all of it counts as REBUILD."""
        used = _used(parts)
        return cls(
            device,
            _times(parts, is_rebuild),
            _uses(used, is_rebuild),
            sum(part.flash_ns * count for part, count in parts),
            flash_ready_ns,
            _channels(used),
            operator_ns,
            is_rebuild,
            tuple(parts),
        )

    @property
    def duration_ns(self) -> int:
        return sum(self.time_ns.values())

    @property
    def energy_pj(self) -> int:
        return sum(use.energy_pj for use in self.uses)

    @property
    def numbers(self) -> list[Number]:
        """What time and energy follow from."""
        return [_number(meter, *spent, self.is_rebuild) for meter, spent in _used(self.parts).items()]

    @property
    def parts_ns(self) -> tuple[int, ...]:
        """When each part ends, since the task began."""
        durations = (duration for part, count in self.parts for duration in [part.duration_ns] * count)
        return tuple(accumulate(durations)) or (self.duration_ns,)

    def cut(self, at_ns: int) -> Cost:
        """Of the task if it is told at_ns after its beginning to stop: it ends with the part that runs then.

        A read of the flash that has begun is finished; what is read is of no use to the next pass.
        """
        ends = self.parts_ns
        done = bisect_left(ends, at_ns) + 1
        if done >= len(ends):
            return self
        parts = _first(self.parts, done)
        ready_ns = ends[done - 1] + parts[-1][0].flash_left_ns if self.flash_ready_ns else 0
        return Cost.of(self.device, parts, ready_ns, self.operator_ns, self.is_rebuild)


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


_Counted = Sequence[tuple[Part, int]]


def _first(parts: _Counted, count: int) -> list[tuple[Part, int]]:
    first = list[tuple[Part, int]]()
    for part, times in parts:
        if count <= 0:
            break
        first.append((part, min(times, count)))
        count -= times
    return first


def _times(counted: _Counted, is_rebuild: bool) -> dict[Component, int]:
    times: dict[Component, int] = {}
    for part, count in counted:
        for component, ns in part.time_ns.items():
            times[component] = times.get(component, 0) + ns * count
    return {Component.REBUILD: sum(times.values())} if is_rebuild else times


def _used(counted: _Counted) -> dict[Meter, tuple[int, int]]:
    """How much, and what that takes alone."""
    used: dict[Meter, tuple[int, int]] = {}
    for part, count in counted:
        for meter, (amount, alone_ns) in part.used.items():
            before, before_ns = used.get(meter, (0, 0))
            used[meter] = before + amount * count, before_ns + alone_ns * count
    return used


def _number(meter: Meter, amount: int, alone_ns: int, is_rebuild: bool) -> Number:
    component = Component.REBUILD if is_rebuild else meter.component
    return Number(component, meter.device, meter.what, amount, meter.unit, meter.per_second, alone_ns)


def _uses(used: Mapping[Meter, tuple[int, int]], is_rebuild: bool) -> tuple[Use, ...]:
    drawn_aj: dict[tuple[str, Component], int] = {}
    for meter, (amount, _) in used.items():
        key = meter.device, Component.REBUILD if is_rebuild else meter.component
        drawn_aj[key] = drawn_aj.get(key, 0) + amount * meter.energy_aj
    drawn = ((device, component, aj // _ATTO_PER_PICO) for (device, component), aj in drawn_aj.items())
    return tuple(Use(device, component, pj) for device, component, pj in drawn if pj)


def _channels(used: Mapping[Meter, tuple[int, int]]) -> dict[str, int]:
    moved: dict[str, int] = {}
    for meter, (amount, _) in used.items():
        if meter.is_channel:
            moved[meter.device] = moved.get(meter.device, 0) + amount
    return moved
