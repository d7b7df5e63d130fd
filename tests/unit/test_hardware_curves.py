"""What policies are told: curves, and plain decoding as a whole."""

from __future__ import annotations

import pytest

from hetspec.hardware.curves import Curve
from hetspec.hardware.flash import ReadAhead
from hetspec.hardware.work import ItemRows, VerifyWork, WalkWork
from tests.toy_hardware import REAL_LAYERS, draft_rows, toy_data, toy_pricing, verify_rows


@pytest.mark.parametrize("buckets", [True, False])
@pytest.mark.parametrize("flash", [{}, None])
def test_curves_tell_what_the_work_would_cost(buckets: bool, flash: dict[str, object] | None) -> None:
    data = toy_data(flash)
    if not buckets:
        del data["devices"]["npu"]["buckets"]
    pricing, ahead = toy_pricing(data), ReadAhead(10**7)
    curves = pricing.curves(kv_len=300, max_rows=40, max_step_rows=40, ahead=ahead)
    assert curves.draft_step_ns is not None
    assert curves.draft_step_pj is not None
    for rows in range(1, 41):
        cost = pricing.price(verify_rows(rows, kv_len=300), ahead)
        assert (curves.verify_ns(rows), curves.verify_pj(rows)) == (cost.duration_ns, cost.energy_pj)
        step = pricing.price(draft_rows(rows, kv_len=300))
        assert (curves.draft_step_ns(rows), curves.draft_step_pj(rows)) == (step.duration_ns, step.energy_pj)
    row = pricing.price(WalkWork(1, 1))
    assert (curves.walk_row_ns, curves.walk_row_pj) == (row.duration_ns, row.energy_pj)
    assert curves.static_uw == 350_000 + (20_000 if flash is not None else 0)


def test_a_curve_has_no_more_points_than_buckets() -> None:
    assert [rows for rows, _ in toy_pricing().curves(100, 16, 4).verify_ns.points] == [1, 4, 16]


@pytest.mark.parametrize("rows", [0, -1, 17])
def test_outside_of_its_range_a_curve_tells_nothing(rows: int) -> None:
    with pytest.raises(ValueError, match=f"rows = {rows}, the curve tells 1 to 16"):
        toy_pricing().curves(100, 16, 1).verify_ns(rows)


def test_between_points_a_curve_is_the_next_ones() -> None:
    curve = Curve(((1, 10), (4, 20)))
    assert [curve(rows) for rows in (1, 2, 3, 4)] == [10, 20, 20, 20]


def test_plain_decoding_is_its_chunks_then_a_pass_and_a_head_row_a_token() -> None:
    pricing = toy_pricing()

    def chunk(start: int, end: int) -> int:
        rows = end - start
        lengths = tuple(range(start + 1, end + 1))
        return pricing.price(VerifyWork((ItemRows(lengths),), (rows,) * REAL_LAYERS)).duration_ns

    walk = pricing.price(WalkWork(1, 1)).duration_ns
    expected = chunk(0, 16) + chunk(16, 32) + chunk(32, 37) + chunk(37, 38) + chunk(38, 39) + 3 * walk
    assert pricing.plain(prompt_tokens=37, output_tokens=3, chunk_tokens=16) == expected


def test_plain_decoding_from_flash_reads_ahead_while_tokens_are_chosen() -> None:
    """Every pass but the first finds read what the walk before it and the last layer's computing left time for."""
    with_it, without = (toy_pricing(toy_data(flash={"reads_ahead": on})) for on in (True, False))
    first = with_it.price(verify_rows(1, kv_len=1))
    walk = with_it.price(WalkWork(1, 1)).duration_ns
    idle = first.duration_ns - first.flash_ready_ns + walk
    saved = without.plain(1, 11, 16) - with_it.plain(1, 11, 16)
    assert saved == pytest.approx(10 * idle, rel=1e-3)


@pytest.mark.parametrize("lengths", [(0, 1, 1), (1, 0, 1), (1, 1, 0)])
def test_plain_decoding_of_nothing_is_refused(lengths: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="must be positive"):
        toy_pricing().plain(*lengths)
