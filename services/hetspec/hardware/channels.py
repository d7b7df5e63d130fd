"""Memories' channels as a task finds them, and rows that are handed from one device to another through one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from hetspec.hardware.cost import Component, Meter
from hetspec.hardware.ledger import Ledger
from hetspec.hardware.profile import Described
from hetspec.hardware.units import time_ns

_FP16_BYTES = 2
_FAIR = Fraction(1, 2)


@dataclass(frozen=True, slots=True)
class Beside:
    """What runs when a task begins. taken: of each memory's bandwidth; half of it is left in any case. operator_ns: by
    device, how long it takes on average until the operator under way has ended."""

    taken: Mapping[str, Fraction] = field(default_factory=dict)
    operator_ns: Mapping[str, int] = field(default_factory=dict)


class Channels:
    def __init__(self, profile: Described) -> None:
        self._profile = profile
        self._handed_over: dict[int, Meter] = {}  # by the rate
        through = profile.handover.through if profile.handover else ""
        self._trips = Meter(Component.TRANSFER, through, "handovers", "trip", 0, 0)

    def left(self, memory: str, beside: Beside) -> int:
        """Bytes a second for a task that begins: what others leave of the channel, or half of it. Memory controllers
        are fair, and those who were there first are not priced anew."""
        bandwidth, taken = self._profile.memories[memory].bandwidth.base, beside.taken.get(memory)
        if taken is None or not self._profile.contention:
            return bandwidth
        if taken < 0:
            raise ValueError(f"taken = {taken}, must not be negative")
        return int(bandwidth * max(1 - taken, _FAIR))

    def hand_over(self, ledger: Ledger, numbers: int, trips: int, beside: Beside) -> None:
        """So many float16 numbers in all, in so many trips; each is written once and read once."""
        handover = self._profile.handover
        assert handover is not None  # checked with the profile
        left = self.left(handover.through, beside)
        if (meter := self._handed_over.get(left)) is None:
            meter = self._handed_over[left] = self._meter(handover.through, left)
        moved, latency_ns = 2 * numbers * _FP16_BYTES, trips * handover.latency.base
        ledger.hold(Component.TRANSFER, latency_ns + time_ns(moved, left))
        ledger.use(self._trips, trips, alone_ns=latency_ns)
        ledger.use(meter, moved)

    def _meter(self, memory: str, left: int) -> Meter:
        energy_aj = self._profile.memories[memory].energy.base
        return Meter(Component.TRANSFER, memory, "rows handed over", "B", left, energy_aj, is_channel=True)
