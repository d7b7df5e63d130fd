"""The native parts: a linear layer's rows by themselves and among others, quantised inputs, shares, the barrier."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from hetspec.model import forward
from hetspec.model.lanes import LANES, QMAX
from hetspec.model.pack import GROUP
from hetspec.model.plan import check_runnable
from tests.packs import TINY

RNG = np.random.default_rng(3)
PANELS, INPUTS = 5, 2 * GROUP


class Linear:
    """A random linear layer behind a plan; `rows` are its inputs."""

    def __init__(self, precision: str, rows: NDArray[Any]) -> None:
        self.int8 = precision == "int8"
        shape = (PANELS, INPUTS // 2, LANES, 2) if self.int8 else (PANELS, INPUTS, LANES)
        weights = np.random.default_rng(1)
        self.w = weights.integers(-127, 128, shape).astype(np.int8 if self.int8 else np.float32)
        self.scale = weights.normal(0, 1, (PANELS, INPUTS // GROUP, LANES)).astype(np.float32)
        self.rows = np.ascontiguousarray(rows)
        self.row_scale = np.ones(len(rows), np.float32)

    def run(self, threads: int = 1, only: int | None = None) -> NDArray[np.float32]:
        """[rows, outputs], of thread `only` or of all of them; NaN where nobody wrote."""
        plan = np.zeros(forward.PLAN_SIZE, np.int64)
        plan[[forward.INT8, forward.THREADS, forward.INPUT_STRIDE]] = self.int8, threads, INPUTS
        plan[[forward.INPUT, forward.INPUT_SCALE]] = self.rows.ctypes.data, self.row_scale.ctypes.data
        out = np.full((len(self.rows), PANELS * LANES), np.nan, np.float32)
        for thread in range(threads) if only is None else [only]:
            forward.linear(
                plan, self.w.ctypes.data, self.scale.ctypes.data, self.rows.ctypes.data, INPUTS, INPUTS,
                out.ctypes.data, PANELS, len(self.rows), thread,
            )  # fmt: skip
        return out


def inputs(precision: str, count: int) -> NDArray[Any]:
    if precision == "int8":
        return RNG.integers(-QMAX, QMAX + 1, (count, INPUTS)).astype(np.int16)
    return RNG.normal(0, 1, (count, INPUTS)).astype(np.float32)


@pytest.mark.parametrize("precision", ["int8", "float32"])
def test_a_row_of_a_linear_has_the_same_bits_at_every_place_in_every_height(precision: str) -> None:
    rows = inputs(precision, 9)
    alone = [Linear(precision, row[None]).run()[0] for row in rows]
    for height in range(1, 10):
        for first in range(10 - height):
            found = Linear(precision, rows[first : first + height]).run()
            np.testing.assert_array_equal(found, alone[first : first + height])


@pytest.mark.parametrize("precision", ["int8", "float32"])
@pytest.mark.parametrize("threads", [2, 3, 7])
def test_threads_share_the_outputs_without_a_change(precision: str, threads: int) -> None:
    linear = Linear(precision, inputs(precision, 3))
    np.testing.assert_array_equal(linear.run(threads), linear.run())
    written = sum((~np.isnan(linear.run(threads, only=thread))).astype(int) for thread in range(threads))
    assert (written == 1).all()


@given(st.integers(0, 200), st.integers(1, 20))
def test_shares_are_whole_and_as_even_as_they_can_be(n: int, threads: int) -> None:
    parts = [range(*forward.share.py_func(n, thread, threads)) for thread in range(threads)]
    assert [i for part in parts for i in part] == list(range(n))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def quantised(x: NDArray[np.float32], row: int = 1) -> tuple[NDArray[np.int16], np.float32]:
    """The row of integers, the next group's end included, and its scale."""
    stride = 2 * GROUP
    ints, scales = np.full((3, stride), 99, np.int16), np.full(3, 99, np.float32)
    plan = np.zeros(forward.PLAN_SIZE, np.int64)
    plan[[forward.INPUT, forward.INPUT_SCALE, forward.INPUT_STRIDE]] = ints.ctypes.data, scales.ctypes.data, stride
    forward.quantise(plan, row, x.ctypes.data, len(x))
    width = -(-len(x) // GROUP) * GROUP
    assert (ints[[0, 2]] == 99).all()
    assert (ints[row, width:] == 99).all()
    return ints[row, :width], scales[row]


@pytest.mark.parametrize("n", [GROUP // 2, GROUP, GROUP + GROUP // 2])
@pytest.mark.parametrize("size", [1e-25, 1.0, 3e30])
def test_a_quantised_row_is_its_largest_magnitude_in_32767ths(n: int, size: float) -> None:
    x = (RNG.normal(0, 1, n) * size).astype(np.float32)
    ints, scale = quantised(x)
    top = np.abs(x).max()
    assert scale == top / np.float32(QMAX)
    np.testing.assert_array_equal(ints[:n], np.rint(x * (np.float32(QMAX) / top)))
    assert np.abs(ints).max() == QMAX
    assert not ints[n:].any()


@pytest.mark.parametrize("value", [0.0, 1e-45, 9e-31])
def test_a_row_too_small_to_scale_is_zeros(value: float) -> None:
    ints, scale = quantised(np.full(GROUP, value, np.float32))
    assert not ints.any()
    assert np.isfinite(scale)


def test_nobody_passes_a_barrier_before_all_have_come() -> None:
    threads, rounds = 3, 40
    counter, plan = np.zeros(1, np.int64), np.zeros(forward.PLAN_SIZE, np.int64)
    plan[[forward.THREADS, forward.BARRIER]] = threads, counter.ctypes.data
    came = [0] * threads
    seen: list[int] = []

    def work(thread: int) -> None:
        for _ in range(rounds):
            came[thread] += 1
            forward.barrier(plan)
            seen.append(min(came) - came[thread])
            forward.barrier(plan)

    forward.barrier(np.where(np.arange(len(plan)) == forward.THREADS, 1, plan))  # compiled before the threads start
    workers = [threading.Thread(target=work, args=(thread,)) for thread in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert seen == [0] * threads * rounds
    assert counter[0] == 2 * threads * rounds


@pytest.mark.parametrize(("name", "size"), [("hidden_size", 24), ("head_dim", 8)])
def test_a_shape_that_the_kernels_cannot_take_is_refused_by_name(name: str, size: int) -> None:
    with pytest.raises(ValueError, match=f"{name} = {size}, must be a multiple of 16"):
        check_runnable(replace(TINY, **{name: size}))
