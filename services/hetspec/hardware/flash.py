"""Layers that come from flash in every pass: how long a read takes, and what of it a pass has to wait for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from hetspec.hardware.platform import Flash
from hetspec.hardware.units import time_ns


@dataclass(frozen=True, slots=True)
class ReadAhead:
    """idle_ns: for how long the flash could have read for the next pass: since `Cost.flash_ready_ns` of the last."""

    idle_ns: int = 0


@dataclass(frozen=True, slots=True)
class FlashRates:
    """What is left of a flash's numbers once they are put together."""

    bytes_per_second: int
    latency_ns: int
    queued: bool

    @classmethod
    def of(cls, flash: Flash) -> FlashRates:
        """Of the table, at the size of the requests; and never more than the queue holds within a latency (Little)."""
        rate, latency, depth = _at(flash), flash.latency.base, flash.queue_depth.base
        if latency:
            rate = min(rate, depth * flash.request.base * 10**9 // latency)
        return cls(rate, latency, depth > 1)

    def read_ns(self, layer_bytes: int, first: bool) -> int:
        """The latency shows where no other request waits: before a pass's first layer, without a queue before each."""
        return time_ns(layer_bytes, self.bytes_per_second) + (self.latency_ns if first or not self.queued else 0)


def _at(flash: Flash) -> int:
    """Bytes a second at the size of the requests, on straight lines between the table's."""
    size = flash.request.base
    points = [(rate.request_bytes, rate.base) for rate in flash.bandwidth]
    for (small, slow), (large, fast) in pairwise(points):
        if small <= size <= large:
            return slow + (fast - slow) * (size - small) // (large - small)
    return points[0][1]


@dataclass(frozen=True, slots=True)
class Flow:
    """A pass with its reads. wait_ns: what the device waited for weights. read_ns: what the flash read, also before the
    pass began. ready_ns: from the pass's beginning until the flash can read for the next."""

    wait_ns: int
    read_ns: int
    ready_ns: int


def stream(read_ns: Sequence[int], busy_ns: Sequence[int], buffer_layers: int, ahead_ns: int) -> Flow:
    """By layer: read_ns, 0 for a resident one, and busy_ns, what it takes once its weights are there.

    Reads follow each other, at most `buffer_layers` of them ahead of the layer that is computed; so a uniform pass
    takes read + (n - 1) * max(busy, read) + busy. Of the first `buffer_layers` reads, ahead_ns is done when it begins.
    """
    clock = flash_free = waited = 0
    begun: list[int] = []  # of the streamed layers: when each was begun to be computed
    credit = ahead_ns
    for read, busy in zip(read_ns, busy_ns, strict=True):
        if read:
            done = min(credit, read) if len(begun) < buffer_layers else 0
            credit -= done
            flash_free = max(flash_free, _slot(begun, buffer_layers)) + read - done
            wait = max(0, flash_free - clock)
            waited += wait
            clock += wait
            begun.append(clock)
        clock += busy
    return Flow(waited, sum(read_ns), max(flash_free, _slot(begun, buffer_layers)))


def stream_serially(read_ns: Sequence[int], busy_ns: Sequence[int]) -> Flow:
    """Each layer is read, then computed: nothing overlaps."""
    total = sum(read_ns)
    return Flow(total, total, total + sum(busy_ns))


def _slot(begun: Sequence[int], buffer_layers: int) -> int:
    """When the buffer has room for one layer more."""
    return begun[-buffer_layers] if len(begun) >= buffer_layers else 0


def resident_layers(budget_bytes: int, layer_bytes: int, n_layers: int) -> int:
    """The first ones stay. The rest pass through buffers beside the budget."""
    return min(n_layers, budget_bytes // layer_bytes)


def buffer_bytes(buffer_layers: int, layer_bytes: int, streamed: int) -> int:
    """One more than wait: the layer that is computed."""
    return min(buffer_layers + 1, streamed) * layer_bytes
