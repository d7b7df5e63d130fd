"""Devices of an emulated world: when each is free, and how long it was busy."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial

from hetspec.hardware.channels import Beside
from hetspec.hardware.cost import Cost

Span = tuple[int, int]  # from, to
_REMEMBERED = 1 << 14  # spans of a device


@dataclass(slots=True)
class _Device:
    """busy_ns: of all tasks. The last of them lasts from begin_ns to end_ns, and takes these shares of the memories'
    bandwidths; operator_ns: see Cost. spans: when it was busy, the newest of them."""

    busy_ns: int = 0
    begin_ns: int = 0
    end_ns: int = 0
    shares: Mapping[str, Fraction] = field(default_factory=dict)
    operator_ns: int = 0
    spans: deque[Span] = field(default_factory=partial(deque[Span], maxlen=_REMEMBERED))

    def hold(
        self, begin_ns: int, end_ns: int, busy_ns: int, shares: Mapping[str, Fraction], operator_ns: int = 0
    ) -> None:
        self.busy_ns += busy_ns
        self.begin_ns, self.end_ns, self.shares = begin_ns, end_ns, shares
        self.operator_ns = operator_ns
        self.spans.append((end_ns - busy_ns, end_ns))

    def cut(self, end_ns: int, new_end_ns: int, saved_ns: int) -> None:
        """The task that was to end at end_ns."""
        self.busy_ns -= saved_ns
        self._cut_span(end_ns, new_end_ns)
        if self.end_ns == end_ns:
            self.end_ns = new_end_ns

    def _cut_span(self, end_ns: int, new_end_ns: int) -> None:
        place = next(place for place in range(len(self.spans) - 1, -1, -1) if self.spans[place][1] == end_ns)
        self.spans[place] = self.spans[place][0], new_end_ns

    def busy_until(self, now_ns: int) -> int:
        return self.busy_ns - max(0, self.end_ns - now_ns)


class Devices:
    """A device holds one task at a time; flash reads for a device's task, and may be done before it or after."""

    def __init__(self, names: Iterable[str], flash: str | None) -> None:
        self._devices = {name: _Device() for name in names}
        self._flash = self._devices.get(flash) if flash else None

    def free_ns(self, device: str) -> int:
        return self._devices[device].end_ns

    def flash_idle_ns(self, now_ns: int) -> int:
        """How long the flash could have read for what begins now."""
        return 0 if self._flash is None else max(0, now_ns - self._flash.end_ns)

    def beside(self, now_ns: int) -> Beside:
        """What runs now, as a task that begins finds it."""
        taken: dict[str, Fraction] = {}
        running = {name: device for name, device in self._devices.items() if device.begin_ns <= now_ns < device.end_ns}
        for device in running.values():
            for memory, share in device.shares.items():
                taken[memory] = min(Fraction(1), taken.get(memory, Fraction(0)) + share)
        return Beside(taken, {name: device.operator_ns for name, device in running.items() if device.operator_ns})

    def hold(self, begin_ns: int, cost: Cost, shares: Mapping[str, Fraction]) -> None:
        """For a task that begins then."""
        duration_ns = cost.duration_ns
        self._devices[cost.device].hold(begin_ns, begin_ns + duration_ns, duration_ns, shares, cost.operator_ns)
        if self._flash is not None and cost.flash_busy_ns:
            self._flash.hold(begin_ns, begin_ns + cost.flash_ready_ns, cost.flash_busy_ns, {})

    def cut(self, begin_ns: int, cost: Cost, shorter: Cost) -> None:
        """The task that began then ends as one of the shorter cost."""
        end_ns = begin_ns + shorter.duration_ns
        self._devices[cost.device].cut(begin_ns + cost.duration_ns, end_ns, cost.duration_ns - shorter.duration_ns)
        if self._flash is not None and cost.flash_busy_ns:
            ready_ns = begin_ns + shorter.flash_ready_ns
            self._flash.cut(begin_ns + cost.flash_ready_ns, ready_ns, cost.flash_busy_ns - shorter.flash_busy_ns)

    def rest(self, now_ns: int) -> None:
        """Flash has read nothing ahead."""
        if self._flash is not None:
            self._flash.end_ns = max(now_ns, self._flash.end_ns)

    def busy_ns(self, now_ns: int) -> dict[str, int]:
        return {name: device.busy_until(now_ns) for name, device in self._devices.items()}

    def spans(self, since_ns: int, until_ns: int) -> dict[str, list[Span]]:
        """When each was busy in that time, whoever for."""
        return {name: list(_within(device.spans, since_ns, until_ns)) for name, device in self._devices.items()}


def _within(spans: deque[Span], since_ns: int, until_ns: int) -> Iterator[Span]:
    """The newest first. They follow one another."""
    for begin_ns, end_ns in reversed(spans):
        if end_ns <= since_ns:
            return
        if begin_ns < min(end_ns, until_ns):
            yield max(begin_ns, since_ns), min(end_ns, until_ns)
