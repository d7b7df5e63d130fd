"""Devices of an emulated world: when each is free, and how long it was busy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from hetspec.hardware.cost import Cost


@dataclass(slots=True)
class _Device:
    """busy_ns: of all tasks. The last of them lasts from begin_ns to end_ns, and takes these shares of the memories'
    bandwidths."""

    busy_ns: int = 0
    begin_ns: int = 0
    end_ns: int = 0
    shares: Mapping[str, Fraction] = field(default_factory=dict)

    def hold(self, begin_ns: int, end_ns: int, busy_ns: int, shares: Mapping[str, Fraction]) -> None:
        self.busy_ns += busy_ns
        self.begin_ns, self.end_ns, self.shares = begin_ns, end_ns, shares

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

    def taken(self, now_ns: int) -> dict[str, Fraction]:
        """Of the memories' bandwidths, what tasks take that run now."""
        taken: dict[str, Fraction] = {}
        for device in self._devices.values():
            if device.begin_ns <= now_ns < device.end_ns:
                for memory, share in device.shares.items():
                    taken[memory] = min(Fraction(1), taken.get(memory, Fraction(0)) + share)
        return taken

    def hold(self, begin_ns: int, cost: Cost, shares: Mapping[str, Fraction]) -> None:
        """For a task that begins then."""
        duration_ns = cost.duration_ns
        self._devices[cost.device].hold(begin_ns, begin_ns + duration_ns, duration_ns, shares)
        if self._flash is not None and cost.flash_busy_ns:
            self._flash.hold(begin_ns, begin_ns + cost.flash_ready_ns, cost.flash_busy_ns, {})

    def rest(self, now_ns: int) -> None:
        """Flash has read nothing ahead."""
        if self._flash is not None:
            self._flash.end_ns = max(now_ns, self._flash.end_ns)

    def busy_ns(self, now_ns: int) -> dict[str, int]:
        return {name: device.busy_until(now_ns) for name, device in self._devices.items()}
