"""Which layers of a pack live in memory, and how the others get there: each once a pass, read under compute."""

from __future__ import annotations

import mmap
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hetspec.model.cut import NEVER, Cut
from hetspec.model.pack import PackLayout

Bytes = NDArray[np.uint8]
_LOOK_EVERY_S = 0.05


class PassStopped(Exception):
    """The pass was cut: `layers` were run, no cache has moved on."""

    def __init__(self, layers: int) -> None:
        super().__init__(f"stopped before layer {layers}")
        self.layers = layers


class WeightReader(Protocol):
    """Reads a pack: `map` gives all of it where it lies on this host, `read_into` fills a buffer from anywhere."""

    @property
    def layout(self) -> PackLayout: ...
    def map(self) -> Bytes | None: ...
    def read_into(self, offset: int, buffer: memoryview, cut: Cut = NEVER, /) -> None: ...


def load_segment(reader: WeightReader, name: str) -> Bytes:
    """A whole segment, for good: mapped where it lies, or read."""
    segment = reader.layout.segments[name]
    mapped = reader.map()
    if mapped is not None:
        return mapped[segment.offset : segment.offset + segment.bytes]
    return read_segment(reader, name, _buffer(segment.bytes))


def read_segment(reader: WeightReader, name: str, buffer: Bytes, cut: Cut = NEVER) -> Bytes:
    reader.read_into(reader.layout.segments[name].offset, buffer.data, cut)
    return buffer


def _buffer(size: int) -> Bytes:
    """Page-aligned, as direct reads need."""
    return np.frombuffer(mmap.mmap(-1, size), dtype=np.uint8)


class LayerWeights:
    """The layers under a budget of bytes (0: no budget, everything resident).

    The first layers stay; the rest pass through two buffers, one being read while the other is computed on. So resident
    bytes never exceed budget + two layers.
    """

    def __init__(self, reader: WeightReader, budget_bytes: int) -> None:
        layout = reader.layout
        self._reader = reader
        self.budget_bytes = budget_bytes
        self.count = layout.config.n_layers
        self.layer_bytes = layout.segments["layers.0"].bytes
        self.resident = self.count if not budget_bytes else min(self.count, budget_bytes // self.layer_bytes)
        self.addresses = np.zeros(self.count, np.int64)
        self.pass_bytes_read = self.pass_reads = 0
        self.total_bytes_read = 0
        self._kept: list[Bytes] = []
        for layer in range(self.resident):
            name = f"layers.{layer}"
            whole = load_segment(reader, name) if not budget_bytes else read_segment(reader, name, self._new_buffer())
            self._hold(layer, whole)
        self._buffers = [self._new_buffer() for _ in range(min(2, self.count - self.resident))]
        self._reads = ThreadPoolExecutor(1, thread_name_prefix="layer-reads")  # starts no thread until it is needed

    @property
    def resident_bytes(self) -> int:
        """Held in memory now, streaming buffers included; it does not change after the start."""
        return (self.resident + len(self._buffers)) * self.layer_bytes

    def stretches(self, should_stop: Callable[[], bool] | None = None) -> Generator[tuple[int, int], None, None]:
        """Runs of layers [first, last), in order; the addresses of one are valid until the next is asked for.

        Close it when a pass is cut. Raises what the reader raises, and PassStopped when `should_stop` says so while a
        layer is slow to come.
        """
        cut = Cut()
        self.pass_bytes_read = self.pass_reads = 0
        if self.resident == self.count:
            yield 0, self.count
            return
        layers = iter(range(self.resident, self.count))
        reading: deque[tuple[int, Bytes, Future[None]]] = deque()

        def start(buffer: Bytes) -> None:
            layer = next(layers, None)
            if layer is not None:
                reading.append((layer, buffer, self._reads.submit(self._read, layer, buffer, cut)))

        try:
            for buffer in self._buffers:
                start(buffer)
            if self.resident:
                yield 0, self.resident
            while reading:
                layer, buffer, read = reading.popleft()
                while not wait((read,), _LOOK_EVERY_S).done:
                    if should_stop is not None and should_stop():
                        raise PassStopped(layer)
                read.result()
                self.addresses[layer] = buffer.ctypes.data
                yield layer, layer + 1
                start(buffer)
        finally:  # a pass that is cut leaves no read behind that could overwrite the next one's layer
            cut.tell()
            wait([read for _, _, read in reading if not read.cancel()])

    def close(self) -> None:
        self._reads.shutdown()

    def _read(self, layer: int, buffer: Bytes, cut: Cut) -> None:
        read_segment(self._reader, f"layers.{layer}", buffer, cut)
        self.pass_bytes_read += self.layer_bytes
        self.total_bytes_read += self.layer_bytes
        self.pass_reads += 1

    def _hold(self, layer: int, weights: Bytes) -> None:
        self._kept.append(weights)
        self.addresses[layer] = weights.ctypes.data

    def _new_buffer(self) -> Bytes:
        return _buffer(self.layer_bytes)
