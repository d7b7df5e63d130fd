"""The target's layers as they come from flash while others are computed, entered with what a pass waits for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hetspec.hardware.cost import Component, Meter, Part
from hetspec.hardware.flash import FlashRates, Flow, ReadAhead, Step, stream, stream_one_ahead, stream_serially
from hetspec.hardware.ledger import Ledger
from hetspec.hardware.platform import Flash, Memory
from hetspec.hardware.profile import FLASH

Layers = list[tuple[Part, int]]
"""Of a pass, one after another, each as often as it is repeated; without what they wait for flash."""


class Streaming:
    """layer_bytes: of each layer, of which the first `resident` stay in memory and are never read."""

    def __init__(self, flash: Flash, layer_bytes: int, resident: int, name: str, memory: Memory) -> None:
        self._flash = flash
        self._layer_bytes = layer_bytes
        self._resident = resident
        rates = FlashRates.of(flash)
        self._first_ns, self._read_ns = (rates.read_ns(layer_bytes, first=first) for first in (True, False))
        self._read = Meter(Component.FLASH, FLASH, "layers", "B", rates.bytes_per_second, flash.energy.base)
        into = memory.bandwidth.base, memory.energy.base
        self._written = Meter(Component.FLASH, name, "layers written", "B", *into, is_channel=True)

    def enter(self, ledger: Ledger, layers: Layers, ahead: ReadAhead) -> int:
        """Of a pass, with the reads that begin meanwhile. When the flash can read for the next pass."""
        flow, latency_ns = self._flow(layers, ahead), self._first_ns - self._read_ns
        for layer, step in _together(layers, flow.steps):
            ledger.add(layer)
            ledger.hold(Component.FLASH, step.wait_ns)
            if step.begun:
                duration_ns, latency_ns = step.begun * self._read_ns + latency_ns, 0
                ledger.use(self._read, step.begun * self._layer_bytes, alone_ns=duration_ns)
                ledger.use(self._written, step.begun * self._layer_bytes)
                ledger.read(duration_ns)
            ledger.leave(step.left_ns)
            ledger.end_part(step.count)
        return flow.ready_ns

    def _flow(self, layers: Layers, ahead: ReadAhead) -> Flow:
        flash = self._flash
        runs = [(part.duration_ns, count) for part, count in layers]
        idle_ns, room = ahead.idle_ns if flash.reads_ahead else 0, flash.buffer_layers.base
        if flash.reads == "overlap" and room == 1 and not self._resident:
            return stream_one_ahead(runs, self._first_ns, self._read_ns, idle_ns)
        busy = [duration_ns for duration_ns, count in runs for _ in range(count)]
        streamed = len(busy) - self._resident
        reads = [0] * self._resident + [self._first_ns] + [self._read_ns] * (streamed - 1)
        return stream_serially(reads, busy) if flash.reads == "serial" else stream(reads, busy, room, idle_ns)


def _together(layers: Layers, steps: Sequence[Step]) -> Iterator[tuple[Part, Step]]:
    """Each step with its layer: a run of layers is one step, or several that are as many."""
    following = iter(steps)
    for layer, count in layers:
        while count:
            step = next(following)
            yield layer, step
            count -= step.count
