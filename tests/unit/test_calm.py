"""A machine that does nothing else while it is measured is told from one that is busy."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from calibration import calm
from calibration.calm import Waiting, check_alike, check_rising, check_waiting
from calibration.errors import CalibrationError
from calibration.plan import OFTEN, Plan, Tree
from calibration.sample import Sample
from hetspec.hardware.measured import KvTable, RowsTable
from hetspec.hardware.work import DraftWork, ItemRows, VerifyWork, WalkWork, Work

BUSY = "something else keeps this machine busy: "
WORKS: dict[str, Callable[[int], Work]] = {
    "passes": lambda rows: VerifyWork((ItemRows((100,) * rows),), (rows,) * 2),
    "drafts": lambda rows: DraftWork((ItemRows((100,) * rows),), (rows,), 1),
    "walks": lambda rows: WalkWork(rows, rows, lazy=False),
}


def samples(slower: str, by: Callable[[random.Random], float]) -> list[Sample]:
    """Five of each task. by: how many times longer those of `slower` took; the others as long as they take alone."""
    drawn = random.Random(7)
    return [
        Sample(work(rows), round(1e6 * rows * (by(drawn) if name == slower else 1)))
        for name, work in WORKS.items()
        for rows in (1, 2, 4, 8)
        for _ in range(5)
    ]


@pytest.mark.parametrize("kind", WORKS)
def test_tasks_that_share_their_processor_differ_and_are_told_by_what_they_are(kind: str) -> None:
    check_alike(samples(kind, lambda drawn: drawn.uniform(0.97, 1.1)))
    check_alike(samples(kind, lambda drawn: 3.0 if drawn.random() < 0.1 else 1.0))  # a cron job
    with pytest.raises(CalibrationError, match=f"{BUSY}{kind} of one shape differ by .*, must differ by 15% at most"):
        check_alike(samples(kind, lambda drawn: drawn.uniform(1.0, 3.0)))


def test_however_little_time_there_is_trees_of_few_rows_are_measured_often_enough_to_tell() -> None:
    plan = Plan(1024, 512)
    first = [one.target for one in plan.rounds()[: plan.least_rounds]]
    few = {one for one in first if isinstance(one, Tree) and one.rows <= 8}
    assert len(few) == 8 * len(plan.contexts)
    assert {first.count(one) for one in few} == {OFTEN}


def test_a_table_that_falls_by_more_than_kernels_account_for_is_told() -> None:
    rows = [1, 2, 3, 4]
    check_rising({"a walk": RowsTable(rows=rows, ms=[2.0, 3.0, 5.0, 4.0]), "a draft read": None})
    falling = KvTable(rows=[1, 2], kv=[1, 1440], ms=[[7.5, 7.5], [2.7, 3.1]])
    with pytest.raises(CalibrationError, match=rf"{BUSY}a draft read of 1 rows took 7\.50 ms, of 2 rows 2\.70 ms"):
        check_rising({"a draft read": falling})
    with pytest.raises(CalibrationError, match=r"a walk of 3 rows took 9\.00 ms, of 4 rows 4\.00 ms"):
        check_rising({"a walk": RowsTable(rows=rows, ms=[2.0, 3.0, 9.0, 4.0])})


def pressure(total_us: int) -> str:
    return f"some avg10=1.00 avg60=2.00 avg300=3.00 total={total_us}\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"


def test_what_waited_for_a_processor_is_a_share_of_the_time_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s, file = [100.0], tmp_path / "cpu"
    monkeypatch.setattr(calm.time, "monotonic", lambda: now_s[0])
    file.write_text(pressure(5_000_000))
    waiting = Waiting(file)
    now_s[0] += 20.0
    file.write_text(pressure(9_000_000))
    assert waiting.share() == pytest.approx(0.2)
    check_waiting(waiting.share())
    file.write_text(pressure(21_000_000))
    with pytest.raises(CalibrationError, match=f"{BUSY}something waited for a processor 80% of the time, must be 25%"):
        check_waiting(waiting.share())


@pytest.mark.parametrize("content", [None, "", "some of it\n"])
def test_where_the_system_does_not_tell_nothing_waited(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "cpu").write_text(content)
    check_waiting(Waiting(tmp_path / "cpu").share())
