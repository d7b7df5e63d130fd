"""A session's timeline: what becomes of tasks, and what bounds it."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetspec.hardware.platform import Role
from orchestrator.timeline.task import CURRENT, Kind, Outcome, Task
from orchestrator.timeline.timeline import Timeline


def ask(timeline: Timeline, kind: Kind = Kind.DRAFT, fault: BaseException | None = None) -> Task:
    task: Task | None = None
    try:
        with timeline.task(kind) as task:
            if fault is not None:
                raise fault
    except (asyncio.CancelledError, ConnectionError):
        pass
    assert task is not None
    return task


@pytest.mark.parametrize(
    ("fault", "outcome"),
    [(None, Outcome.DONE), (asyncio.CancelledError(), Outcome.CANCELLED), (ConnectionError(), Outcome.FAILED)],
)
def test_the_way_a_task_is_left_is_its_outcome(fault, outcome):
    timeline = Timeline()
    task = ask(timeline, fault=fault)
    assert (task.outcome, timeline.tasks, timeline.marks) == (outcome, [task], [])


def test_a_task_that_was_cut_is_not_merely_cancelled_and_the_moment_is_marked():
    timeline = Timeline(emulated_ns=lambda: 77)
    with suppress(asyncio.CancelledError), timeline.task(Kind.LOOK_AHEAD, "3 nodes") as task:
        timeline.cut(task)
        raise asyncio.CancelledError
    (mark,) = timeline.marks
    assert task.outcome is Outcome.CUT
    assert (mark.what, mark.task, mark.role, mark.emulated_ns) == ("cut: look ahead 3 nodes", task, Role.DRAFTER, 77)


def test_only_what_was_done_can_be_dropped_and_only_once():
    timeline = Timeline()
    done, failed = ask(timeline), ask(timeline, fault=ConnectionError())
    for task in (done, done, failed):
        timeline.dropped(task)
    assert [task.outcome for task in (done, failed)] == [Outcome.DROPPED, Outcome.FAILED]
    assert [mark.task for mark in timeline.marks] == [done]


def test_the_verification_of_what_was_proposed_is_judged_once():
    timeline = Timeline()
    first, second, verdict, later = (ask(timeline) for _ in range(4))
    timeline.propose(first, None, second)
    timeline.judge(verdict)
    timeline.judge(later)
    assert [(flow.source, flow.target) for flow in timeline.flows] == [(first, verdict), (second, verdict)]


async def test_what_runs_side_by_side_sees_its_own_task():
    timeline, seen = Timeline(), {}

    async def unit(kind: Kind, turns: int) -> None:
        with timeline.task(kind) as task:
            for _ in range(turns):
                await asyncio.sleep(0)
                assert CURRENT.get() is task
            seen[kind] = task

    await asyncio.gather(unit(Kind.DRAFT, 5), unit(Kind.VERIFY, 3))
    assert CURRENT.get() is None
    assert list(seen) == [Kind.VERIFY, Kind.DRAFT]


@given(st.integers(0, 8), st.integers(0, 20))
def test_a_timeline_is_bounded_and_counts_what_it_leaves_out(most, asked):
    timeline = Timeline(max_tasks=most)
    for _ in range(asked):
        with timeline.task(Kind.WALK) as task:
            assert (CURRENT.get() is task) == (len(timeline.tasks) + timeline.left_out <= most)
        timeline.dropped(task)
        timeline.flow(task, task)
    assert len(timeline.tasks) == min(most, asked)
    assert len(timeline.tasks) + timeline.left_out == asked
    assert max(len(timeline.marks), len(timeline.flows)) <= most


@given(st.lists(st.sampled_from(list(Kind)), max_size=12))
def test_a_switch_is_marked_wherever_the_drafter_goes_from_drafting_to_checking_or_back(kinds):
    timeline = Timeline()
    for kind in kinds:
        ask(timeline, kind)
    drafter = [kind is Kind.PRE_VERIFY for kind in kinds if kind.role is Role.DRAFTER]
    changes = [now for before, now in zip([False, *drafter], drafter, strict=False) if before is not now]
    names = {True: "switch to checking", False: "switch to drafting"}
    assert [mark.what for mark in timeline.marks] == [names[to] for to in changes]


def test_a_task_that_was_sent_and_not_answered_ends_when_it_is_left():
    timeline = Timeline()
    with suppress(asyncio.CancelledError), timeline.task(Kind.DRAFT) as task:
        task.sent(1, 2, 5, 7)
        before_ns = time.perf_counter_ns()
        raise asyncio.CancelledError
    assert before_ns <= task.end_ns <= time.perf_counter_ns()
    task.answered(task.end_ns + 1, 10, 20)
    assert (task.rows, task.pass_rows, task.queue_ns, task.compute_ns) == (5, 7, 10, 20)
