"""A measured machine: its tables, what lies between them, and what does not."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.interpolate import RegularGridInterpolator

from hetspec.hardware.cost import Component
from hetspec.hardware.cost_as import own_cost, parse_cost_as
from hetspec.hardware.datatypes import Datatype
from hetspec.hardware.pricing import Pricing
from hetspec.hardware.profile import MeasuredHost, ProfileError, load_profile, parse_profile
from hetspec.hardware.work import ItemRows, VerifyWork, WalkWork
from tests.toy_hardware import REAL, REAL_LAYERS, draft_rows, verify_rows

ROWS, KV = [1, 8, 64, 256], [64, 256, 1024]
VERIFY_MS = [[10.0, 11.0, 15.0], [14.0, 16.0, 22.0], [40.0, 48.0, 80.0], [150.0, 170.0, 300.0]]
DATA: dict[str, Any] = {
    "name": "desk",
    "about": "a machine",
    "device": "host",
    "measured": {
        "machine": "two cores",
        "threads": 1,
        "precision": "int8",
        "date": "2026-11-30",
        "target": "real",
        "draft": "real-draft",
        "verify": {"rows": ROWS, "kv": KV, "ms": VERIFY_MS},
        "draft_read": {"rows": [1, 16], "kv": [64, 1024], "ms": [[3.0, 4.0], [6.0, 8.0]]},
        "draft_step": {"rows": [1, 16], "kv": [64, 1024], "ms": [[1.0, 2.0], [4.0, 6.0]]},
        "head": {"rows": [1, 65], "ms": [1.0, 17.0]},
        "task_ms": 0.25,
    },
}


def host(**changes: object) -> MeasuredHost:
    data = deepcopy(DATA)
    data["measured"] |= changes
    profile = parse_profile(data, "desk.yaml")
    assert isinstance(profile, MeasuredHost)
    return profile


def pricing(**changes: object) -> Pricing:
    own = own_cost(REAL, Datatype.INT8)
    return Pricing(host(**changes), own.target, own.draft, REAL)


@given(st.integers(1, 256), st.integers(64, 1024))
def test_between_measured_points_times_lie_as_scipy_interpolates_them(rows: int, kv: int) -> None:
    expected = RegularGridInterpolator((ROWS, KV), VERIFY_MS)((rows, kv)) * 1e6 + 250_000
    cost = pricing().price(verify_rows(rows, kv_len=kv))
    assert cost.duration_ns == pytest.approx(expected, abs=3)


@pytest.mark.parametrize(("row", "rows"), list(enumerate(ROWS)))
@pytest.mark.parametrize(("column", "kv"), list(enumerate(KV)))
def test_at_a_measured_point_the_time_is_what_was_measured(row: int, rows: int, column: int, kv: int) -> None:
    cost = pricing().price(verify_rows(rows, kv_len=kv))
    assert cost.time_ns == {Component.LAUNCH: 250_000, Component.COMPUTE: round(VERIFY_MS[row][column] * 1e6)}
    assert cost.energy_pj == 0


@pytest.mark.parametrize(
    ("rows", "kv", "told"),
    [
        (257, 64, "rows = 257, was measured from 1 to 256"),
        (1, 1025, "kv = 1025, was measured from 64 to 1024"),
        (1, 63, "kv = 63, was measured from 64 to 1024"),
    ],
)
def test_outside_of_what_was_measured_nothing_is_guessed(rows: int, kv: int, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        pricing().price(verify_rows(rows, kv_len=kv))


def test_rows_that_left_early_cost_the_layers_that_they_ran_through() -> None:
    work = VerifyWork((ItemRows((64,) * 64),), (64, 64, 8, 8, 8, 1))
    expected = (2 * 40 + 3 * 14 + 10) / REAL_LAYERS * 1e6
    assert pricing().price(work).time_ns[Component.COMPUTE] == pytest.approx(expected, abs=REAL_LAYERS)


def test_a_pass_that_was_cut_costs_its_share() -> None:
    cut = pricing().price(verify_rows(1, kv_len=64, layers=2))
    assert cut.time_ns[Component.COMPUTE] == pytest.approx(10e6 * 2 / REAL_LAYERS, abs=1)


def test_streamed_layers_are_read_under_compute() -> None:
    """Two resident layers are computed while the first of four is read."""
    reading = pricing(layer_read_ms=9.0, streamed_layers=4).price(verify_rows(1, kv_len=64))
    layer = 10 / REAL_LAYERS
    assert reading.duration_ns == pytest.approx((0.25 + max(2 * layer, 9) + 3 * 9 + layer) * 1e6, abs=REAL_LAYERS)
    assert reading.flash_busy_ns == 36_000_000


@pytest.mark.parametrize(
    ("step_rows", "head_rows", "reads"),
    [
        ((16,), 1, 1),
        ((16, 1, 1), 3, 1),  # one session: a head row of what was read, and those of two steps
        ((16, 16, 2), 3, 2),  # a long text is read in pieces
        ((16, 16, 2), 19, 1),
        ((2, 1), 1, 2),
        ((3, 3, 4), 10, 1),  # three sessions read a token each, and feed seven nodes
        ((3, 16, 4), 6, 2),  # two sessions: one of them reads in pieces
    ],
)
def test_a_draft_is_what_it_reads_and_the_steps_that_follow(
    step_rows: tuple[int, ...], head_rows: int, reads: int
) -> None:
    cost = pricing().price(draft_rows(*step_rows, kv_len=64, head_rows=head_rows))
    expected = sum(3.0 + (rows - 1) * 0.2 for rows in step_rows[:reads])
    expected += sum(1.0 + (rows - 1) * 0.2 for rows in step_rows[reads:])
    assert cost.duration_ns == pytest.approx(250_000 + expected * 1e6, abs=len(step_rows))


def test_policies_are_told_of_the_steps_that_follow_without_what_a_task_costs() -> None:
    curve = pricing().curves(64, 8, 8).draft_step_ns
    assert curve is not None
    assert [curve(rows) for rows in (1, 6)] == [1_000_000, 2_000_000]


def test_a_lazy_walk_takes_four_rows_after_another_and_one_at_once_the_tables_line() -> None:
    head = {rows: pricing().price(WalkWork(rows, rows, lazy=False)).duration_ns - 250_000 for rows in (1, 3, 4)}
    assert pricing().price(WalkWork(9, 3)).duration_ns == 250_000 + head[3]
    assert pricing().price(WalkWork(9, 9)).duration_ns == 250_000 + 2 * head[4] + head[1]
    assert pricing().price(WalkWork(33, 33, lazy=False)).duration_ns == 250_000 + 9_000_000


def test_the_template_cannot_be_priced_before_it_is_measured() -> None:
    own = own_cost(REAL, Datatype.INT8)
    with pytest.raises(ProfileError, match="host: not measured yet, `hetspec calibrate` does it"):
        Pricing(load_profile("host"), own.target, own.draft, REAL)


def test_a_measured_machine_prices_nothing_but_what_it_was_measured_with() -> None:
    with pytest.raises(ProfileError, match="desk: a measured machine prices what it runs, not cost_as 'llama2"):
        Pricing(host(), parse_cost_as("llama2-7b:int4").target, None, REAL)
    with pytest.raises(ValueError, match="was measured with other and real-draft, real and real-draft run"):
        pricing(target="other")
    with pytest.raises(ValueError, match="was measured with real and no draft model"):
        pricing(draft=None, draft_read=None, draft_step=None)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"verify": {"rows": [1], "kv": KV, "ms": VERIFY_MS}}, "measured.verify: ms has 4 lines, must have 1"),
        (
            {"verify": {"rows": [1], "kv": [64], "ms": [[0.0]]}},
            "measured.verify: ms [0.0], must be 1 numbers above 0, at most 1e+06",
        ),
        ({"head": {"rows": [2, 1], "ms": [1.0, 1.0]}}, "measured.head: rows [2, 1], must be positive and ascending"),
        (
            {"head": {"rows": [1], "ms": [1.0, 2.0]}},
            "measured.head: ms [1.0, 2.0], must be 1 numbers above 0, at most 1e+06",
        ),
        ({"draft": None}, "measured: draft, draft_read and draft_step must be given together"),
        ({"streamed_layers": 3}, "measured: layer_read_ms must be given where streamed_layers is"),
        ({"guess": 1}, "measured.guess: Extra inputs are not permitted"),
    ],
)
def test_tables_that_cannot_be_are_refused_by_file_and_field(changes: dict[str, object], told: str) -> None:
    with pytest.raises(ProfileError) as refusal:
        host(**changes)
    assert str(refusal.value).startswith(f"desk.yaml: {told}")
