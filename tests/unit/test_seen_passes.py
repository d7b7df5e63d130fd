"""A measured curve against the passes that a unit has run since: closed forms."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetspec.drafting.costs import CostCurve
from orchestrator.policies.seen_passes import SeenPass, corrected

CURVE = CostCurve(((1, 10_000), (2, 11_000), (4, 12_000), (8, 16_000), (32, 64_000)))
ratios = st.floats(0.2, 5)


def of_rows(rows: int, ratio: float, count: int = 1) -> list[SeenPass]:
    return [SeenPass(rows, 1, round(CURVE(rows) * ratio))] * count


def test_without_passes_a_curve_is_as_it_was_measured() -> None:
    assert corrected(CURVE, []) == CURVE


@given(ratios, st.lists(st.integers(1, 32), min_size=1, max_size=40))
def test_a_unit_that_is_slower_by_a_factor_is_found_to_be_whatever_its_passes_were(
    ratio: float, rows: list[int]
) -> None:
    found = corrected(CURVE, [each for count in rows for each in of_rows(count, ratio)])
    assert [cost for _, cost in found.points] == pytest.approx([cost * ratio for _, cost in CURVE.points], rel=1e-3)


def test_a_curve_measured_too_flat_gets_the_slope_of_its_passes() -> None:
    """Where the unit measured 1.2 times a single row's time for four rows, and passes take twice."""
    passes = [*of_rows(1, 1.0, 20), *of_rows(4, 2 * 10_000 / 12_000, 20)]
    found = corrected(CURVE, passes)
    assert (found(1), found(4)) == (10_000, 20_000)
    assert found(8) == round(16_000 * 2 * 10_000 / 12_000)  # no pass is nearer


@given(ratios, ratios)
def test_distant_passes_are_outvoted_by_a_few_near_ones(near: float, far: float) -> None:
    found = corrected(CURVE, [*of_rows(32, far, 30), *of_rows(1, near, 3)])
    assert found(1) == pytest.approx(10_000 * near, rel=1e-3)


def test_passes_that_something_held_up_do_not_move_a_point() -> None:
    assert corrected(CURVE, [*of_rows(2, 1.0, 11), *of_rows(2, 90.0, 9)])(2) == 11_000


@given(st.lists(st.tuples(st.integers(1, 40), ratios), max_size=30))
def test_more_rows_never_cost_less(seen: list[tuple[int, float]]) -> None:
    passes = [SeenPass(rows, 1, round(ratio * 10_000 * rows**0.5)) for rows, ratio in seen]
    costs = [cost for _, cost in corrected(CURVE, passes).points]
    assert costs == sorted(costs)


def test_passes_of_more_rows_than_the_curve_tells_are_left_out() -> None:
    assert corrected(CURVE, [SeenPass(33, 1, 1)]) == CURVE
