"""From samples to a profile: a machine whose times are known is found again, also where some of them were disturbed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from calibration.draft_probe import DraftShape
from calibration.plan import READ_CHUNK, Chunk, Plan, Tree
from calibration.sample import Sample
from calibration.tables import Point, head_table, kv_table, read_points, step_points, verify_points
from hetspec.hardware.cost_as import own_cost
from hetspec.hardware.datatypes import Datatype
from hetspec.hardware.measured import KvTable, Measured, RowsTable
from hetspec.hardware.pricing import Pricing
from hetspec.hardware.profile import MeasuredHost
from hetspec.hardware.work import DraftWork, ItemRows, VerifyWork, WalkWork, Work
from tests.toy_hardware import REAL, REAL_LAYERS

PLAN = Plan(1024, 512)
KV = [1, 2000]
ALL_ROWS = sorted({1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 48, 65, 128, READ_CHUNK, 512})
STEP_ROWS = [1, 2, 4, 8, 16, 32, 64]
READ_ROWS = [1, 2, 4, 8, 64, 256, 512]


def _table(rows: list[int], fixed: float, row: float, attention: float) -> KvTable:
    ms = [[fixed + row * each + attention * each * kv for kv in KV] for each in rows]
    return KvTable(rows=rows, kv=KV, ms=ms)


TRUTH = Measured(
    machine="a machine",
    threads=1,
    precision="int8",
    date="2026-11-30",
    target="real",
    draft="real-draft",
    verify=_table(ALL_ROWS, 10.0, 3.0, 0.0004),
    draft_read=_table(READ_ROWS, 3.0, 0.125, 0.00005),
    draft_step=_table(STEP_ROWS, 1.5, 0.25, 0.00005),
    head=RowsTable(rows=[1, 2, 4, 8, 16, 32, 65], ms=[4.0, 5.0, 6.5, 12.0, 23.0, 45.0, 90.0]),
)


def _pricing(measured: Measured) -> Pricing:
    own = own_cost(REAL, Datatype.INT8)
    return Pricing(
        MeasuredHost(name="found", about="a machine", device="host", measured=measured), own.target, own.draft, REAL
    )


def _verify(rows: int, context: int) -> VerifyWork:
    return VerifyWork((ItemRows((context + 1,) * rows),), (rows,) * REAL_LAYERS)


def _draft(shape: DraftShape, context: int) -> DraftWork:
    """As a drafter does it: of more than eight tokens the last is read by itself."""
    reads = (shape.read - 1, 1) if shape.read > 8 else (shape.read,)
    steps = (*reads, *(shape.width,) * shape.steps)
    return DraftWork((ItemRows((context + 1,) * sum(steps)),), steps, 1 + shape.width * shape.steps)


def _works() -> Iterator[Work]:
    yield from (_verify(READ_CHUNK, context) for context in range(128, PLAN.max_context, READ_CHUNK))
    for one in PLAN.rounds():
        match one.target:
            case Tree(level, rows):
                yield _verify(rows, PLAN.contexts[level])
            case Chunk(context, rows):
                yield _verify(rows, context + rows // 2)
        yield _draft(one.draft, PLAN.contexts[one.draft_level])
        yield WalkWork(one.walk, one.walk, one.lazy)


def _found(samples: list[Sample]) -> Measured:
    read = kv_table(read_points(samples))
    return TRUTH.model_copy(
        update={
            "verify": kv_table(verify_points(samples)),
            "draft_read": read,
            "draft_step": kv_table(step_points(samples, read)),
            "head": head_table(samples),
        }
    )


@pytest.mark.parametrize("disturbed", [False, True])
def test_a_machine_of_known_times_is_found_again(disturbed: bool) -> None:
    """Also at rows and positions that were not measured. Of the disturbed tasks, one in eleven took twice as long."""
    truth = _pricing(TRUTH)
    samples = [Sample(work, truth.price(work).duration_ns) for work in _works()]
    if disturbed:
        samples = [Sample(s.work, s.ns * (2 if i % 11 == 3 else 1)) for i, s in enumerate(samples)]
    found = _pricing(_found(samples))
    unseen: list[Work] = [_verify(rows, kv) for rows in (1, 3, 10, 40, 65, 100) for kv in (64, 700, 1000)]
    unseen += [_draft(DraftShape(3, width, steps), 300) for width in (1, 3, 8) for steps in (0, 1, 5)]
    unseen += [WalkWork(1, 1), WalkWork(4, 4), WalkWork(20, 20, lazy=False)]
    tolerance = 0.15 if disturbed else 0.002
    for work in unseen:
        assert found.price(work).duration_ns == pytest.approx(truth.price(work).duration_ns, rel=tolerance), work


def test_every_shape_of_a_plan_is_among_its_first_rounds() -> None:
    rounds = PLAN.rounds()
    first = rounds[: PLAN.least_rounds]
    assert {one.target for one in first} == {one.target for one in rounds}
    assert {(one.draft, one.draft_level) for one in first} == {(one.draft, one.draft_level) for one in rounds}
    assert {(one.walk, one.lazy) for one in first} == {(one.walk, one.lazy) for one in rounds}
    assert len(first) < len(rounds)


def test_a_unit_of_few_rows_is_asked_for_no_longer_chunks() -> None:
    assert max(one.target.rows for one in Plan(1024, 128).rounds()) == 128


def test_times_never_fall_with_positions_nor_reach_nothing() -> None:
    table = kv_table([Point(1, 10.0, 5e6), Point(1, 1000.0, 3e6), Point(2, 10.0, 1.0)])
    assert table.ms[0][0] == table.ms[0][1] == 4.0
    assert min(table.ms[1]) > 0
