"""Tasks that are told to stop: what they come to, against what the part done costs by itself."""

from __future__ import annotations

import pytest

from hetspec.hardware.cost import Component, Cost, Use
from hetspec.hardware.work import DraftWork, ItemRows
from tests.toy_hardware import REAL_LAYERS, TARGET, draft_rows, toy_data, toy_pricing, verify_rows


@pytest.mark.parametrize("layers", range(1, REAL_LAYERS + 1))
def test_a_pass_cut_at_a_layer_costs_what_a_pass_of_so_many_layers_does(layers: int) -> None:
    """Six layers run, twelve are priced."""
    pricing = toy_pricing()
    whole, short = pricing.price(verify_rows(4)), pricing.price(verify_rows(4, layers=layers))
    assert whole.cut(short.duration_ns) == short
    assert whole.cut(short.duration_ns - 1) == short


@pytest.mark.parametrize("steps", [1, 2, 3, 4])
def test_a_draft_cut_at_a_step_costs_what_a_draft_of_so_many_steps_does(steps: int) -> None:
    pricing, rows = toy_pricing(), (3, 1, 1, 2)
    lengths = (ItemRows((100,) * sum(rows)),)  # the same mean of all steps
    whole = pricing.price(draft_rows(*rows, head_rows=4))
    short = pricing.price(DraftWork(lengths, rows[:steps], steps))
    assert whole.parts_ns[steps - 1] == short.duration_ns
    assert whole.cut(short.duration_ns) == short


def test_a_read_that_had_begun_is_finished_and_of_no_use() -> None:
    """Where flash binds: by the end of a layer the next one's read has begun, and is done when that would begin."""
    pricing = toy_pricing(toy_data(flash={}))
    whole = pricing.price(verify_rows(1))
    read_ns, latency_ns, ends = TARGET.layer_weights * 34 // 32, 50_000, whole.parts_ns
    for done in range(1, TARGET.n_layers):
        cost = whole.cut(ends[done - 1])
        assert cost.flash_busy_ns == latency_ns + (done + 1) * read_ns
        assert cost.flash_ready_ns == latency_ns + (done + 1) * read_ns > cost.duration_ns
    assert whole.flash_busy_ns == latency_ns + TARGET.n_layers * read_ns


def test_what_would_end_before_it_is_told_to_stop_is_not_cut() -> None:
    cost = toy_pricing().price(verify_rows(1))
    assert cost.cut(cost.duration_ns) is cost
    assert cost.cut(cost.duration_ns + 1) is cost


def test_a_cost_without_parts_is_one_part() -> None:
    cost = Cost("npu", {Component.COMPUTE: 10}, (Use("npu", Component.COMPUTE, 3),))
    assert cost.parts_ns == (10,)
    assert cost.cut(1) is cost


def test_what_is_cut_of_a_rebuilding_pass_counts_as_rebuilding() -> None:
    work = verify_rows(4)
    work = type(work)(work.items, work.rows_by_layer, rebuilt=True)
    cost = toy_pricing().price(work)
    assert cost.cut(1).time_ns == {Component.REBUILD: cost.parts_ns[0]}
