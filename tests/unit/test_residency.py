"""Layers under a budget: which stay, when the others are read, and what a pass that ends early leaves."""

from __future__ import annotations

import threading
from contextlib import closing
from ctypes import string_at
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetspec.model.cut import NEVER, Cut
from hetspec.model.residency import LayerWeights, PassStopped, load_segment
from tests.packs import MemoryPack

LAYERS = 6


class RecordingPack(MemoryPack):
    """Keeps the order of reads. `gate` holds them up, `fail_at` breaks the read of a layer once."""

    def __init__(self, **options: Any) -> None:
        super().__init__(n_layers=LAYERS, **options)
        self.begun: list[int] = []
        self.gate = threading.Event()
        self.gate.set()
        self.fail_at: int | None = None
        self._offsets = {self.layout.segments[f"layers.{i}"].offset: i for i in range(LAYERS)}

    def read_into(self, offset: int, buffer: memoryview, cut: Cut = NEVER) -> None:
        layer = self._offsets[offset]
        self.begun.append(layer)
        assert self.gate.wait(10)
        if layer == self.fail_at:
            self.fail_at = None
            raise OSError("torn")
        super().read_into(offset, buffer, cut)


def layer_bytes(pack: MemoryPack) -> int:
    return pack.layout.segments["layers.0"].bytes


def contents(weights: LayerWeights, layer: int) -> bytes:
    """What lies at the layer's address now."""
    return string_at(int(weights.addresses[layer]), weights.layer_bytes)


def stored(pack: MemoryPack, layer: int) -> bytes:
    offset, size = pack.layout.segments[f"layers.{layer}"]
    return pack.data[offset : offset + size].tobytes()


@given(st.integers(0, LAYERS + 2), st.integers(0, 4095), st.booleans())
def test_every_layer_is_there_in_order_and_streamed_ones_are_read_once_a_pass(
    layers: int, rest: int, mapped: bool
) -> None:
    pack = RecordingPack(mapped=mapped)
    size = layer_bytes(pack)
    budget = layers * size + rest
    weights = LayerWeights(pack, budget)
    resident = LAYERS if budget == 0 else min(LAYERS, budget // size)
    streamed = list(range(resident, LAYERS))
    assert weights.resident == resident
    assert weights.resident_bytes <= budget + 2 * size or budget == 0
    assert weights.resident_bytes == (resident + min(2, len(streamed))) * size
    for number in (1, 2):
        pack.begun.clear()
        seen: list[int] = []
        for first, last in weights.stretches():
            seen += range(first, last)
            for layer in range(first, last):
                assert contents(weights, layer) == stored(pack, layer)
        assert seen == list(range(LAYERS))
        assert pack.begun == streamed
        assert (weights.pass_reads, weights.pass_bytes_read) == (len(streamed), len(streamed) * size)
        assert weights.total_bytes_read == number * len(streamed) * size
    weights.close()


def test_the_next_layers_read_has_begun_before_a_layer_is_given() -> None:
    pack = RecordingPack()
    weights = LayerWeights(pack, 2 * layer_bytes(pack))
    pack.begun.clear()
    for first, _ in weights.stretches():
        ahead = min(first + 1 if first else weights.resident + 1, LAYERS - 1)  # under the resident ones: both buffers
        deadline = threading.Event()
        for _ in range(1000):
            if ahead in pack.begun:
                break
            deadline.wait(0.01)
        assert ahead in pack.begun
    weights.close()


def test_reads_go_on_while_a_layer_is_computed_but_never_over_it() -> None:
    pack = RecordingPack()
    weights = LayerWeights(pack, layer_bytes(pack))
    with closing(weights.stretches()) as stretches:
        next(stretches)
        next(stretches)  # layer 1; 2 is read, 3 must wait for 1's buffer
        while 2 not in pack.begun:
            pass
        assert 3 not in pack.begun
        assert contents(weights, 1) == stored(pack, 1)
    weights.close()


@pytest.mark.parametrize("cut_after", [0, 1, 2, 4])
def test_a_cut_pass_leaves_no_read_behind_and_the_next_pass_is_whole(cut_after: int) -> None:
    pack = RecordingPack()
    weights = LayerWeights(pack, layer_bytes(pack))
    stretches = weights.stretches()
    for _ in range(cut_after):
        next(stretches)
    stretches.close()
    begun = len(pack.begun)
    threading.Event().wait(0.02)
    assert len(pack.begun) == begun
    seen = []
    for first, last in weights.stretches():
        seen += range(first, last)
        assert contents(weights, first) == stored(pack, first)
    assert seen == list(range(LAYERS))
    weights.close()


def test_a_cut_waits_for_the_read_under_way() -> None:
    pack = RecordingPack()
    weights = LayerWeights(pack, layer_bytes(pack))
    pack.begun.clear()
    pack.gate.clear()
    stretches = weights.stretches()
    next(stretches)  # the resident layer; a read is under way
    cutting = threading.Thread(target=stretches.close)
    cutting.start()
    cutting.join(0.05)
    assert cutting.is_alive()
    pack.gate.set()
    cutting.join(10)
    assert not cutting.is_alive()
    assert pack.begun == [1]
    weights.close()


@pytest.mark.parametrize("broken", range(1, LAYERS))
def test_a_read_that_fails_is_raised_and_the_next_pass_works(broken: int) -> None:
    pack = RecordingPack()
    weights = LayerWeights(pack, layer_bytes(pack))
    pack.fail_at = broken
    stretches = weights.stretches()
    for layer in range(broken):
        assert next(stretches) == (layer, layer + 1)
    with pytest.raises(OSError, match="torn"):
        next(stretches)
    assert [last for _, last in weights.stretches()] == list(range(1, LAYERS + 1))
    weights.close()


def test_without_a_budget_a_mapped_pack_is_used_where_it_lies() -> None:
    pack = RecordingPack()
    weights = LayerWeights(pack, 0)
    offset = pack.layout.segments["layers.2"].offset
    assert weights.addresses[2] == pack.data.ctypes.data + offset
    assert pack.begun == []


def test_a_segment_is_the_same_mapped_and_read() -> None:
    pack = MemoryPack()
    read = load_segment(MemoryPack(mapped=False), "head")
    np.testing.assert_array_equal(load_segment(pack, "head"), read)
    assert read.ctypes.data % 4096 == 0


def test_a_pass_told_to_stop_waits_for_no_layer_and_leaves_no_read_behind() -> None:
    pack = StuckPack()
    weights = LayerWeights(pack, layer_bytes(pack))
    pack.stuck = True
    looks = iter([False, False, True])
    stretches = weights.stretches(lambda: next(looks))
    assert next(stretches) == (0, 1)
    with pytest.raises(PassStopped) as stopped:
        next(stretches)
    assert stopped.value.layers == 1
    pack.stuck = False
    assert [last for _, last in weights.stretches()] == list(range(1, LAYERS + 1))
    weights.close()


class StuckPack(RecordingPack):
    """While `stuck`, a read lasts until it is cut."""

    stuck = False

    def read_into(self, offset: int, buffer: memoryview, cut: Cut = NEVER) -> None:
        if self.stuck:
            cut.wait(60)
            assert cut.told
            raise OSError("cut")
        super().read_into(offset, buffer, cut)
