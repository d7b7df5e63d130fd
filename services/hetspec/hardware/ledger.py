"""Where a task's time and what it uses are entered while it is priced, part by part."""

from __future__ import annotations

from hetspec.hardware.cost import Component, Cost, Meter, Part
from hetspec.hardware.units import time_ns


class Ledger:
    """Of the task of a device. What is entered belongs to the part that is open."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._parts: list[tuple[Part, int]] = []
        self._open()

    def _open(self) -> None:
        self._time: dict[Component, int] = {}
        self._used: dict[Meter, tuple[int, int]] = {}
        self._flash_ns = self._flash_left_ns = 0

    def hold(self, component: Component, duration_ns: int) -> None:
        """The device is held up so long."""
        if duration_ns:
            self._time[component] = self._time.get(component, 0) + duration_ns

    def use(self, meter: Meter, amount: int, times: int = 1, alone_ns: int | None = None) -> None:
        """`amount` is used, `times` over; it says nothing of what that holds up."""
        if not amount * times:
            return
        each_ns = time_ns(amount, meter.per_second) if alone_ns is None else alone_ns
        before, before_ns = self._used.get(meter, (0, 0))
        self._used[meter] = before + amount * times, before_ns + each_ns * times

    def read(self, duration_ns: int) -> None:
        """Of the flash, hidden or not."""
        self._flash_ns += duration_ns

    def leave(self, left_ns: int) -> None:
        """What the flash still reads at the part's end."""
        self._flash_left_ns = left_ns

    def end_part(self, count: int = 1) -> Part:
        """Which is done `count` times. The next entry belongs to another."""
        part = Part(self._time, self._used, self._flash_ns, self._flash_left_ns)
        self.repeat(part, count)
        self._open()
        return part

    def add(self, part: Part, times: int = 1) -> None:
        """To the part that is open."""
        for component, duration_ns in part.time_ns.items():
            self.hold(component, duration_ns * times)
        for meter, (amount, alone_ns) in part.used.items():
            self.use(meter, amount, times, alone_ns)

    def repeat(self, part: Part, count: int = 1) -> None:
        self._parts.append((part, count))

    def close(self, flash_ready_ns: int = 0, operator_ns: int = 0, is_rebuild: bool = False) -> Cost:
        if self._time or self._used or self._flash_ns:
            self.end_part()
        return Cost.of(self._device, self._parts, flash_ready_ns, operator_ns, is_rebuild)
