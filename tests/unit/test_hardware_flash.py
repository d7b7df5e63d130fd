"""Layers that stream from flash, against a simulation that moves nanosecond by nanosecond."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetspec.hardware.flash import FlashRates, Flow, Step, stream, stream_one_ahead, stream_serially
from hetspec.hardware.platform import Flash
from tests.toy_hardware import toy_data, toy_profile


@dataclass
class TickingFlash:
    """Reads one layer after the other while there is room for it."""

    reads: list[int]
    room: int
    at: int = 0
    left: int = 0
    full: list[int] = field(default_factory=list)  # layers that are read and wait
    begun: int = 0
    done_ns: int = 0  # of the last read that was begun: when it is over

    def begin(self, now: int) -> None:
        while self.at < len(self.reads) and not self.left and len(self.full) < self.room:
            self.left = self.reads[self.at]
            if not self.left:
                self.at += 1
            else:
                self.begun, self.done_ns = self.begun + 1, max(0, now + self.left)

    def tick(self) -> None:
        if self.left:
            self.left -= 1
            if not self.left:
                self.full.append(self.at)
                self.at += 1

    @property
    def is_free(self) -> bool:
        return self.at == len(self.reads) and not self.left and len(self.full) < self.room


def simulate(reads: list[int], busy: list[int], room: int, ahead: int) -> Flow:
    flash = TickingFlash(list(reads), room)
    for before in range(ahead):
        flash.begin(before - ahead)
        flash.tick()
    now = begun = 0
    ready: int | None = None
    steps = []
    for layer, duration in enumerate(busy):
        wait = 0
        flash.begin(now)
        while reads[layer] and layer not in flash.full:
            flash.tick()
            flash.begin(now + 1)
            now, wait = now + 1, wait + 1
        if reads[layer]:
            flash.full.remove(layer)
        for _ in range(duration):
            flash.begin(now)
            if ready is None and flash.is_free:
                ready = now
            flash.tick()
            now += 1
        steps.append(Step(wait, flash.begun - begun, max(0, flash.done_ns - now)))
        begun = flash.begun
    return Flow(steps, now if ready is None else ready)


passes = st.integers(0, 4).flatmap(
    lambda resident: st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), min_size=1, max_size=8).map(
        lambda streamed: (
            [0] * resident + [read for read, _ in streamed],
            [3] * resident + [busy for _, busy in streamed],
        )
    )
)


@given(passes, st.integers(1, 4), st.integers(0, 30))
def test_waiting_and_what_is_read_meanwhile_are_those_of_a_simulation(
    layers: tuple[list[int], list[int]], room: int, ahead: int
) -> None:
    reads, busy = layers
    assert stream(reads, busy, room, ahead) == simulate(reads, busy, room, ahead)


@given(
    st.lists(st.tuples(st.integers(1, 60), st.integers(1, 4)), min_size=1, max_size=4),
    st.integers(0, 9),
    st.integers(1, 50),
    st.integers(0, 90),
)
def test_the_closed_form_with_one_layer_ahead_is_the_general_one(
    runs: list[tuple[int, int]], latency: int, read: int, ahead: int
) -> None:
    closed = stream_one_ahead(runs, read + latency, read, ahead)
    busy = [duration for duration, count in runs for _ in range(count)]
    layers = [Step(step.wait_ns, step.begun, step.left_ns) for step in closed.steps for _ in range(step.count)]
    assert Flow(layers, closed.ready_ns) == stream([read + latency] + [read] * (len(busy) - 1), busy, 1, ahead)


@given(st.lists(st.tuples(st.integers(1, 99), st.integers(1, 99)), min_size=1, max_size=9))
def test_with_one_layer_ahead_a_pass_is_fill_then_the_longer_of_each_pair(layers: list[tuple[int, int]]) -> None:
    reads, busy = [read for read, _ in layers], [busy for _, busy in layers]
    pairs = sum(max(now, then) for now, then in zip(busy[:-1], reads[1:], strict=True))
    assert stream(reads, busy, 1, 0).wait_ns + sum(busy) == reads[0] + pairs + busy[-1]


@given(st.lists(st.tuples(st.integers(1, 99), st.integers(1, 99)), min_size=1, max_size=9))
def test_serially_a_pass_is_the_sum_of_reading_and_computing(layers: list[tuple[int, int]]) -> None:
    reads, busy = [read for read, _ in layers], [busy for _, busy in layers]
    flow = stream_serially(reads, busy)
    assert (flow.wait_ns, sum(step.begun for step in flow.steps), flow.ready_ns) == (
        sum(reads),
        len(reads),
        sum(reads) + sum(busy),
    )


@given(st.integers(40, 60), st.integers(1, 50), st.integers(1, 3), st.integers(0, 200))
def test_where_reads_bind_reading_ahead_saves_what_is_idle_or_what_the_buffer_holds(
    n: int, busy: int, room: int, idle: int
) -> None:
    read = busy + 10
    alone, ahead = (stream([read] * n, [busy] * n, room, idle_ns) for idle_ns in (0, idle))
    assert alone.wait_ns - ahead.wait_ns == min(idle, room * read)
    assert sum(step.begun for step in alone.steps) == sum(step.begun for step in ahead.steps) == n


def flash_of(**changes: object) -> Flash:
    flash = toy_profile(toy_data(changes)).flash
    assert flash is not None
    return flash


def test_the_rate_lies_on_the_line_between_the_requests_of_the_table() -> None:
    table = [
        {"request": "4 KiB", "value": "100 MB/s", "assumption": "."},
        {"request": "8 KiB", "value": "300 MB/s", "assumption": "."},
    ]
    rates = FlashRates.of(flash_of(bandwidth=table, request="7 KiB", latency="0 ns"))
    assert rates.bytes_per_second == 250_000_000


def test_a_short_queue_bounds_the_rate_by_what_it_holds_within_a_latency() -> None:
    rates = FlashRates.of(flash_of(request="4 KiB", queue_depth=2, latency="100 us"))
    assert rates.bytes_per_second == 2 * 4096 * 10_000


@pytest.mark.parametrize(("depth", "shown"), [(32, 1), (1, 3)])
def test_latency_shows_once_behind_a_queue_and_before_each_layer_without(depth: int, shown: int) -> None:
    rates = FlashRates.of(flash_of(queue_depth=depth, latency="50 us"))
    times = [rates.read_ns(10**6, first=i == 0) for i in range(3)]
    assert sum(times) == 3 * 10**6 * 10**9 // rates.bytes_per_second + shown * 50_000
