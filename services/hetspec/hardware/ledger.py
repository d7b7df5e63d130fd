"""Where a task's time and energy are entered while it is priced."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from hetspec.hardware.cost import Component, Cost, Part, Use
from hetspec.hardware.units import time_ns

_ATTO_PER_PICO = 10**6


@dataclass(frozen=True, slots=True)
class Meter:
    """Something that a task uses up: of which device, at which rate, at which energy each."""

    component: Component
    device: str
    what: str
    unit: str
    per_second: int
    energy_aj: int


class Ledger:
    def __init__(self, device: str) -> None:
        self._device = device
        self._time: Counter[Component] = Counter()
        self._energy_aj: Counter[tuple[str, Component]] = Counter()
        self._parts: dict[tuple[Component, str, str], Part] = {}
        self._channels: Counter[str] = Counter()

    def hold(self, component: Component, duration_ns: int) -> None:
        """The device is held up so long."""
        if duration_ns:
            self._time[component] += duration_ns

    def use(self, meter: Meter, amount: int, times: int = 1, alone_ns: int | None = None) -> None:
        """`amount` is used, `times` over; it says nothing of what that holds up."""
        if not amount * times:
            return
        each_ns = time_ns(amount, meter.per_second) if alone_ns is None else alone_ns
        key = (meter.component, meter.device, meter.what)
        part = self._parts.get(key) or Part(
            meter.component, meter.device, meter.what, 0, meter.unit, meter.per_second, 0
        )
        self._parts[key] = replace(part, amount=part.amount + amount * times, alone_ns=part.alone_ns + each_ns * times)
        self._energy_aj[meter.device, meter.component] += amount * times * meter.energy_aj

    def move(self, channel: str, amount_bytes: int) -> None:
        if amount_bytes:
            self._channels[channel] += amount_bytes

    def close(self, flash_busy_ns: int = 0, flash_ready_ns: int = 0, rebuilt: bool = False) -> Cost:
        """rebuilt: all of it counts as REBUILD."""
        times, uses, parts = dict(self._time), self._uses(), list(self._parts.values())
        if rebuilt:
            times = {Component.REBUILD: self._time.total()}
            uses = [replace(use, component=Component.REBUILD) for use in uses]
            parts = [replace(part, component=Component.REBUILD) for part in parts]
        channels = dict(self._channels)
        return Cost(self._device, times, tuple(uses), flash_busy_ns, flash_ready_ns, channels, tuple(parts))

    def _uses(self) -> list[Use]:
        energies = {key: atto // _ATTO_PER_PICO for key, atto in self._energy_aj.items()}
        return [Use(device, component, pico) for (device, component), pico in energies.items() if pico]
