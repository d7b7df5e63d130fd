"""Numbers with units, and energy that adds up."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetspec.hardware.cost import split
from hetspec.hardware.energy import static_pj
from hetspec.hardware.units import BOUNDS, Dimension, parse, time_ns


@pytest.mark.parametrize(
    ("text", "dimension", "base"),
    [
        ("102.4 GOPS", Dimension.RATE, 102_400_000_000),
        ("16 TFLOPS", Dimension.RATE, 16 * 10**12),
        ("51.2 GB/s", Dimension.BANDWIDTH, 51_200_000_000),
        ("512 KiB", Dimension.SIZE, 2**19),
        ("4 GB", Dimension.SIZE, 4 * 10**9),
        ("1.5 ms", Dimension.TIME, 1_500_000),
        ("0.15 W", Dimension.POWER, 150_000),
        ("4 pJ/bit", Dimension.ENERGY_PER_BYTE, 32_000_000),
        ("0.1 pJ/op", Dimension.ENERGY_PER_OP, 100_000),
        ("10 TOPS/W", Dimension.ENERGY_PER_OP, 100_000),
        ("32", Dimension.COUNT, 32),
    ],
)
def test_a_number_is_exact_in_its_base_unit(text: str, dimension: Dimension, base: int) -> None:
    assert parse(text, dimension) == base


@pytest.mark.parametrize(
    ("text", "dimension", "told"),
    [
        ("4 GB", Dimension.BANDWIDTH, "its unit must be B/s or KB/s"),
        ("4", Dimension.BANDWIDTH, "its unit must be"),
        ("fast GB/s", Dimension.BANDWIDTH, "must be a number and its unit"),
        ("nan s", Dimension.TIME, "must be a number and its unit"),
        ("inf s", Dimension.TIME, "must be a number and its unit"),
        ("-1 ms", Dimension.TIME, "must not be negative"),
        ("0.5 ns", Dimension.TIME, "must be a whole number of ns"),
        ("2.5", Dimension.COUNT, "must be a whole number of pieces"),
        ("0 TOPS/W", Dimension.ENERGY_PER_OP, "must be positive"),
        ("2 rows", Dimension.COUNT, "its unit must be none"),
        ("1e400 TOPS", Dimension.RATE, r"must be in \[1 MOPS, 1000000 TOPS\]"),
        ("1e999999999 s", Dimension.TIME, "must be in"),  # which would fill the memory, as a whole number
        ("1e-999999999 s", Dimension.TIME, "must be in"),
        ("1e30 TOPS/W", Dimension.ENERGY_PER_OP, "must be in"),
    ],
)
def test_a_number_without_sense_is_refused(text: str, dimension: Dimension, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        parse(text, dimension)


@pytest.mark.parametrize("dimension", Dimension)
def test_bounds_are_numbers_themselves_and_nothing_beyond_them_is(dimension: Dimension) -> None:
    least, most = (parse(bound, dimension) for bound in BOUNDS[dimension])
    assert 1 <= least < most
    number, space, unit = BOUNDS[dimension][1].partition(" ")
    with pytest.raises(ValueError, match="must be in"):
        parse(f"{int(number) + 1}{space}{unit}", dimension)


def test_the_documented_bounds_are_those_that_hold() -> None:
    text = (Path(__file__).parents[2] / "docs/hardware.md").read_text(encoding="utf-8")
    assert [bounds for bounds in BOUNDS.values() if f"{bounds[0]} to {bounds[1]}" not in text] == []


@given(st.integers(0, 10**15), st.integers(1, 10**13))
def test_a_time_is_the_first_whole_nanosecond_by_which_it_is_done(amount: int, rate: int) -> None:
    duration = time_ns(amount, rate)
    assert duration * rate >= amount * 10**9 > (duration - 1) * rate


@given(st.integers(0, 10**7), st.lists(st.integers(0, 10**12), min_size=2, max_size=9))
def test_what_adjoining_stretches_draw_sums_to_the_whole(power_uw: int, moments: list[int]) -> None:
    ordered = sorted(moments)
    parts = [static_pj(power_uw, start, end) for start, end in pairwise(ordered)]
    assert sum(parts) == static_pj(power_uw, ordered[0], ordered[-1])
    exact = Fraction(power_uw * (ordered[-1] - ordered[0]), 1000)  # 1 uW for 1 ns: a thousandth of a picojoule
    assert abs(sum(parts) - exact) <= 1


def test_time_does_not_run_backwards() -> None:
    with pytest.raises(ValueError, match="end_ns = 1, must be at least start_ns = 2"):
        static_pj(1, 2, 1)


@given(st.integers(0, 10**18), st.lists(st.integers(0, 10**6), min_size=1, max_size=20))
def test_shares_sum_to_the_whole_and_each_is_less_than_one_off(total: int, shares: list[int]) -> None:
    parts = split(total, shares)
    weights = shares if sum(shares) else [1] * len(shares)
    assert sum(parts) == total
    assert all(
        abs(part - Fraction(total * weight, sum(weights))) < 1 for part, weight in zip(parts, weights, strict=True)
    )


@pytest.mark.parametrize("shares", [[], [1, -1]])
def test_shares_that_cannot_be_are_refused(shares: list[int]) -> None:
    with pytest.raises(ValueError, match="must be at least one, none negative"):
        split(10, shares)
