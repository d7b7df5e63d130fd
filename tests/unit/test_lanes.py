"""Every kernel against its stated order of operations, restated in numpy: bit for bit."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from numba import njit
from numpy.typing import NDArray

from hetspec.model import lanes, panels
from hetspec.model.lanes import LANES, QMAX
from hetspec.model.pack import GROUP

Floats = NDArray[np.float32]
F = np.float32
RNG = np.random.default_rng(7)


@cache
def native(kernel: Any) -> Any:
    """Calls a kernel from Python; arrays go in as their addresses."""
    compiled = njit(lambda *args: kernel(*args))
    return lambda *args: compiled(*(a.ctypes.data if isinstance(a, np.ndarray) else a for a in args))


def fma(x: Any, y: Any, z: Any) -> Floats:
    """x * y + z, rounded once: a float64 sum rounded to odd, then to float32."""
    p, z = np.float64(x) * np.float64(y), np.float64(z)
    s = p + z
    t = s - p
    error = (p - (s - t)) + (z - t)
    even = np.asarray(s).view(np.int64) % 2 == 0
    odd = np.where((error != 0) & even, np.nextafter(s, np.where(error > 0, np.inf, -np.inf)), s)
    return odd.astype(np.float32)


def folded(values: Floats) -> np.float32:
    """Upper half onto lower half until one is left."""
    while len(values) > 1:
        half = len(values) // 2
        values = values[:half] + values[half:]
    return F(values[0])


def floats(*shape: int) -> Floats:
    """Over many orders of magnitude, so that any other order of adding shows."""
    return (RNG.normal(0, 1, shape) * 10.0 ** RNG.integers(-4, 5, shape)).astype(np.float32)


def test_the_restated_fma_rounds_once() -> None:
    x, y = F(1 + 2**-12), F(1 + 2**-12)
    assert fma(x, y, F(0)) == F(1 + 2**-11)  # the exact product ends in 2**-24: a tie, to even
    assert fma(x, y, F(2**-60)) == F(1 + 2**-11 + 2**-23)  # just above the tie, lost in a float64 sum


@pytest.mark.parametrize("n", [0, 16, 64, 240])
def test_dot_and_total_add_lane_by_lane(n: int) -> None:
    x, y = floats(n), floats(n)
    products, sums = np.zeros(LANES, np.float32), np.zeros(LANES, np.float32)
    for i in range(0, n, LANES):
        products = fma(x[i : i + LANES], y[i : i + LANES], products)
        sums = sums + x[i : i + LANES]
    assert F(native(lanes.dot)(x, y, n)) == folded(products)
    assert F(native(lanes.total)(x, n)) == folded(sums)


@pytest.mark.parametrize("n", [16, 64, 240])
def test_four_scaled_dots_are_four_dots_times_the_factor_to_the_bit(n: int) -> None:
    x, rows, factor, found = floats(n), floats(4, n), F(0.3), np.empty(4, np.float32)
    native(lanes.scaled_dots_4)(x, rows, n, factor, found)
    expected = [F(native(lanes.dot)(x, row, n)) * factor for row in rows]
    np.testing.assert_array_equal(found, expected)


def test_maximum_and_abs_max_are_numpys() -> None:
    for place in range(48):
        x = -np.abs(floats(48)) - F(1)
        x[place] = -F(1e9)
        assert native(lanes.abs_max)(x, 48) == F(1e9)
        x[place] = -F(0.5)
        assert native(lanes.maximum)(x, 48) == F(-0.5)
    nothing = np.full(16, -np.inf, np.float32)
    assert native(lanes.maximum)(nothing, 16) == -np.inf
    assert native(lanes.abs_max)(np.zeros(16, np.float32), 16) == 0


def exp(x: Floats) -> Floats:
    padded = np.zeros(-(-len(x) // LANES) * LANES, np.float32)
    padded[: len(x)] = x
    native(lanes.exp_minus)(padded, F(0), len(padded))
    return padded[: len(x)]


def test_exp_is_within_2_ulp_over_its_range() -> None:
    x = np.concatenate([np.linspace(-87, 88, 200_000), np.linspace(-1, 1, 50_000), RNG.normal(0, 1e-6, 1000)])
    x = x.astype(np.float32)
    exact = np.exp(x.astype(np.float64))
    ulp = np.spacing(exact.astype(np.float32)).astype(np.float64)
    assert (np.abs(exp(x) - exact) <= 2 * ulp).all()


def test_exp_is_0_below_its_range_and_stays_finite_above() -> None:
    below = np.array([np.nextafter(F(-87), F(-100)), -88, -104, -1e30, -np.inf], np.float32)
    assert not exp(below).any()
    top = exp(np.array([88, 89, 1e30, np.inf], np.float32))
    assert np.isfinite(top[0])
    assert (top == top[0]).all()
    assert exp(np.array([0, -0.0], np.float32)).tolist() == [1, 1]


def test_exp_minus_subtracts_first() -> None:
    x = floats(32)
    found, shift = x.copy(), F(0.7)
    native(lanes.exp_minus)(found, shift, 32)
    np.testing.assert_array_equal(found, exp(x - shift))


def test_silu_times_is_gate_over_one_plus_exp_of_its_negative_times_up() -> None:
    gate, up = np.linspace(-120, 120, 512).astype(np.float32), floats(512)
    out = np.empty_like(gate)
    native(lanes.silu_times)(gate, up, out, 512)
    np.testing.assert_array_equal(out, gate / (F(1) + exp(-gate)) * up)
    with np.errstate(over="ignore"):
        exact = gate.astype(np.float64) / (1 + np.exp(-gate.astype(np.float64))) * up
    np.testing.assert_allclose(out, exact, rtol=1e-6, atol=1e-30)


def test_sums_scales_and_fills_are_numpys() -> None:
    x, weight = floats(48), floats(48)
    out = np.empty(48, np.float32)
    native(lanes.scale_by)(x, F(0.3), weight, out, 48)
    np.testing.assert_array_equal(out, x * F(0.3) * weight)
    native(lanes.add_to)(out, x, 48)
    np.testing.assert_array_equal(out, x * F(0.3) * weight + x)
    native(lanes.multiply)(out, F(3), 32)
    np.testing.assert_array_equal(out[:32], ((x * F(0.3) * weight + x) * F(3))[:32])
    native(lanes.copy)(x, out, 32)
    native(lanes.fill)(out[16:], F(5), 16)
    assert out[:32].tolist() == [*x[:16].tolist(), *[5.0] * 16]


def test_to_int16_rounds_half_to_even_up_to_the_limits() -> None:
    x = np.array([0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 0.49999997, QMAX, -QMAX, QMAX - 0.5, 0, -0.0, 3, 4, 5, 6], F)
    out = np.empty(16, np.int16)
    native(lanes.to_int16)(x, F(1), out, 16)
    np.testing.assert_array_equal(out, np.rint(x))
    native(lanes.to_int16)(x, F(0.3), out, 16)
    np.testing.assert_array_equal(out, np.rint(x * F(0.3)))


@pytest.mark.parametrize("half", [8, 16, 32])
def test_rotate_half_is_the_references_formula(half: int) -> None:
    x = floats(2 * half)
    angle = RNG.uniform(0, 6, half)
    cos, sin = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
    turned = np.concatenate([-x[half:], x[:half]])
    want = x * np.tile(cos, 2) + turned * np.tile(sin, 2)
    native(lanes.rotate_half)(x, cos, sin, half)
    np.testing.assert_array_equal(x, want)


@pytest.mark.parametrize("width", [16, 64])
def test_weighted_rows_adds_row_after_row(width: int) -> None:
    weight, rows, out = floats(9), floats(9, width + 16), floats(width)
    want = out
    for w, row in zip(weight, rows, strict=True):
        want = fma(w, row[:width], want)
    kernel = lanes.weighted_rows_16 if width == 16 else lanes.weighted_rows_64
    native(kernel)(weight, rows, width + 16, 9, out)
    np.testing.assert_array_equal(out, want)


@pytest.mark.parametrize("height", [1, 2, 4])
def test_int8_panels_add_exact_groups_in_order(height: int) -> None:
    n, stride = 3 * GROUP, 3 * GROUP + 32
    w = RNG.integers(-127, 128, (n // 2, LANES, 2)).astype(np.int8)
    w[:, 0], w[:, 1] = 127, -127
    x = RNG.integers(-QMAX, QMAX + 1, (height, stride)).astype(np.int16)
    x[0], x[-1, :GROUP] = QMAX, -QMAX
    scale, x_scale, out = floats(n // GROUP, LANES), floats(height), np.empty((height, 32), np.float32)
    kernel = {1: panels.panel_int8_1, 2: panels.panel_int8_2, 4: panels.panel_int8_4}[height]
    nowhere, lines = 0, 3
    native(kernel)(w, scale, x, stride, x_scale, out, 32, n, nowhere, lines)
    weights = w.transpose(1, 0, 2).reshape(LANES, n).astype(np.int64)  # [outputs, inputs]
    want = np.zeros((height, LANES), np.float32)
    for group in range(n // GROUP):
        inputs = slice(group * GROUP, (group + 1) * GROUP)
        sums = x[:, inputs].astype(np.int64) @ weights[:, inputs].T
        want = fma(sums.astype(np.float32), scale[group], want)
    np.testing.assert_array_equal(out[:, :LANES], want * x_scale[:, None])


@pytest.mark.parametrize("height", [1, 2, 4])
def test_float32_panels_add_inputs_in_order(height: int) -> None:
    n = 40
    w, x, out = floats(n, LANES), floats(height, n + 8), np.empty((height, LANES), np.float32)
    kernel = {1: panels.panel_float32_1, 2: panels.panel_float32_2, 4: panels.panel_float32_4}[height]
    native(kernel)(w, x, n + 8, out, LANES, n)
    want = np.zeros((height, LANES), np.float32)
    for i in range(n):
        want = fma(w[i], x[:, i : i + 1], want)
    np.testing.assert_array_equal(out, want)


def test_fetch_add_returns_what_was_there() -> None:
    counter = np.array([5], np.int64)
    assert native(lanes.fetch_add)(counter, 3) == 5
    assert native(lanes.load_acquire)(counter) == counter[0] == 8
