"""Layers that come from flash in every pass: how long a read takes, and what of it a pass has to wait for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
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
class Step:
    """A layer, `count` times over. wait_ns: for its weights, before it. begun: reads that begin before it ends and
    after the layer before it; left_ns: what of all reads so far is left when it ends."""

    wait_ns: int
    begun: int
    left_ns: int
    count: int = 1


@dataclass(frozen=True, slots=True)
class Flow:
    """A pass with its reads. ready_ns: from the pass's beginning until the flash can read for the next."""

    steps: Sequence[Step]
    ready_ns: int

    @property
    def wait_ns(self) -> int:
        return sum(step.wait_ns * step.count for step in self.steps)


def stream(read_ns: Sequence[int], busy_ns: Sequence[int], buffer_layers: int, ahead_ns: int) -> Flow:
    """By layer: read_ns, 0 for a resident one, and busy_ns, what it takes once its weights are there.

    Reads follow each other, at most `buffer_layers` of them ahead of the layer that is computed; so a uniform pass
    takes read + (n - 1) * max(busy, read) + busy. Of the first `buffer_layers` reads, ahead_ns is done when it begins.
    """
    clock = flash_free = 0
    begun: list[int] = []  # of the streamed layers: when each was begun to be computed
    waits, ends, reads = list[int](), list[int](), list[tuple[int, int]]()
    credit = ahead_ns
    for read, busy in zip(read_ns, busy_ns, strict=True):
        wait = 0
        if read:
            done = min(credit, read) if len(begun) < buffer_layers else 0
            credit -= done
            start = -1 if done else max(flash_free, _slot(begun, buffer_layers))
            flash_free = max(flash_free, start) + read - done
            reads.append((start, flash_free))
            wait = max(0, flash_free - clock)
            clock += wait
            begun.append(clock)
        waits.append(wait)
        clock += busy
        ends.append(clock)
    steps = [Step(wait, *reading) for wait, reading in zip(waits, _begun_by(ends, reads), strict=True)]
    return Flow(steps, max(flash_free, _slot(begun, buffer_layers)))


def stream_one_ahead(runs: Sequence[tuple[int, int]], first_ns: int, read_ns: int, ahead_ns: int) -> Flow:
    """As `stream` with one layer ahead of the one that is computed, where all are streamed: in closed form.

    runs: of equal layers, what each takes and how many there are. A layer waits for what its read takes longer than the
    layer before it, during which it is read.
    """
    wait = first_ns - min(ahead_ns, first_ns)
    begun, clock = 2, 0
    steps = list[Step]()
    for busy, count in runs:
        left = max(0, read_ns - busy)
        steps += [Step(wait, begun, left), Step(left, 1, left, count - 1)] if count > 1 else [Step(wait, begun, left)]
        clock += wait + count * busy + (count - 1) * left
        wait, begun = left, 1
    return Flow(_ended(steps), clock - runs[-1][0])


def _ended(steps: list[Step]) -> list[Step]:
    """No read begins in the last layer."""
    last = steps.pop()
    if last.count > 1:
        steps.append(replace(last, count=last.count - 1))
    return [*steps, Step(last.wait_ns, last.begun - 1, 0)]


def stream_serially(read_ns: Sequence[int], busy_ns: Sequence[int]) -> Flow:
    """Each layer is read, then computed: nothing overlaps."""
    return Flow([Step(read, int(read > 0), 0) for read in read_ns], sum(read_ns) + sum(busy_ns))


def _begun_by(ends: Sequence[int], reads: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Of reads, each its beginning and its end, what Step tells of them by layer."""
    at = last = 0
    for end in ends:
        before = at
        while at < len(reads) and reads[at][0] < end:
            last = reads[at][1]
            at += 1
        yield at - before, max(0, last - end)


def _slot(begun: Sequence[int], buffer_layers: int) -> int:
    """When the buffer has room for one layer more."""
    return begun[-buffer_layers] if len(begun) >= buffer_layers else 0


def resident_layers(budget_bytes: int, layer_bytes: int, n_layers: int) -> int:
    """The first ones stay. The rest pass through buffers beside the budget."""
    return min(n_layers, budget_bytes // layer_bytes)


def buffer_bytes(buffer_layers: int, layer_bytes: int, streamed: int) -> int:
    """One more than wait: the layer that is computed."""
    return min(buffer_layers + 1, streamed) * layer_bytes
