"""The trace of a request in emulated time, from worlds whose tasks take what they are asked to take."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.api.chrome_trace import Block, Process
from orchestrator.api.trace_emulated import Choice, fill_emulated, lanes
from orchestrator.clock.clock import Arrival
from orchestrator.timeline.task import Kind
from orchestrator.timeline.timeline import Timeline
from tests import trace_rules
from tests.toy_world import ToyUnit, ToyWorld
from tests.trace_rules import arrows, blocks, busy_ns, ns

WITHIN_S = 5.0
Tasks = list[tuple[bool, int]]  # draft or verification, and how long
PLANS = st.lists(
    st.tuples(st.integers(0, 50), st.lists(st.tuples(st.booleans(), st.integers(1, 40)), max_size=5)),
    min_size=1,
    max_size=5,
)


def told(choices: list[Choice], toy: ToyWorld) -> dict[str, Any]:
    presences = [presence for presence, _ in choices]
    origin_ns = min(presence.arrival_ns for presence in presences)
    process = Process(1, "emulated", lanes(presences), origin_ns, itertools.count(1))
    fill_emulated(process, choices, toy.world)
    return {"traceEvents": list(process.events()), "displayTimeUnit": "ms"}


async def session(toy: ToyWorld, tasks: Tasks, after_ns: int = 0, sessions: int = 1) -> Choice:
    """Drafts on the CPU, verifies on the NPU: each verification judges what was drafted since the one before."""
    timeline, drafts = Timeline(toy.world.now_ns), []
    async with toy.world.present(Arrival(after_ns, sessions)) as presence:
        assert presence is not None
        for is_draft, cost_ns in tasks:
            with timeline.task(Kind.DRAFT if is_draft else Kind.VERIFY, f"{cost_ns} ns") as task:
                await (toy.cpu if is_draft else toy.npu).ask(cost_ns)
            if is_draft:
                drafts.append(task)
            else:
                timeline.propose(*drafts)
                timeline.judge(task)
                drafts = []
    return presence, timeline


async def run(plan: list[tuple[int, Tasks]]) -> tuple[ToyWorld, list[Choice]]:
    toy = ToyWorld()
    async with asyncio.timeout(WITHIN_S):
        sessions = [session(toy, tasks, after_ns, len(plan)) for after_ns, tasks in plan]
        return toy, await asyncio.gather(*sessions)


@settings(deadline=None, max_examples=40)
@given(plan=PLANS)
def test_blocks_sum_to_what_each_device_was_busy_and_the_file_keeps_the_rules(plan):
    toy, choices = asyncio.run(run(plan))
    for choice in choices:
        trace = told([choice], toy)
        trace_rules.check(trace)
        assert busy_ns(trace, 1) == choice[0].busy_ns


@settings(deadline=None, max_examples=40)
@given(plan=PLANS)
def test_choices_of_one_request_are_its_own_and_nothing_is_told_twice(plan):
    toy, choices = asyncio.run(run(plan))
    trace = told(choices, toy)
    trace_rules.check(trace)
    assert not [block for block in blocks(trace, 1) if block["cat"] == "other"]
    done = [(is_draft, cost_ns) for _, tasks in plan for is_draft, cost_ns in tasks]
    for lane, is_draft in (("cpu", True), ("npu", False)):
        assert busy_ns(trace, 1)[lane] == sum(cost_ns for each, cost_ns in done if each is is_draft)


async def test_what_others_did_is_shown_and_not_who_they_are():
    toy = ToyWorld()
    (mine, _), _ = (
        await asyncio.gather(
            session(toy, [(False, 100), (False, 30)], sessions=2), session(toy, [(False, 40)], 10, sessions=2)
        ),
        None,
    )
    trace = told([mine], toy)
    found = [(block["name"], *trace_rules.span(block)) for block in blocks(trace, 1)]
    assert found == [("verify 100 ns", 0, 100), ("other", 100, 140), ("verify 30 ns", 140, 170)]
    (other,) = (block for block in blocks(trace, 1) if block["cat"] == "other")
    assert other["args"] == {}
    (wait,) = (event for event in trace["traceEvents"] if event["ph"] == "b")
    (over,) = (event for event in trace["traceEvents"] if event["ph"] == "e")
    assert (ns(wait["ts"]), ns(over["ts"])) == (100, 140)


async def test_arrows_join_each_draft_to_the_verification_that_judged_it():
    toy = ToyWorld()
    choice = await session(toy, [(True, 5), (True, 7), (False, 50), (False, 20), (True, 3), (False, 9)])
    joined = [(source["name"], target["name"]) for source, target in arrows(told([choice], toy), 1)]
    assert sorted(joined) == [
        ("draft 3 ns", "verify 9 ns"), ("draft 5 ns", "verify 50 ns"), ("draft 7 ns", "verify 50 ns")
    ]  # fmt: skip


async def test_a_cut_is_marked_on_the_device_that_was_cut():
    toy = ToyWorld()
    timeline = Timeline(toy.world.now_ns)
    async with toy.world.present(None) as presence:
        assert presence is not None
        beside = toy.world.spawn(_ask(toy.cpu, timeline, 500))
        await toy.npu.ask(120)
        (task,) = timeline.tasks
        timeline.cut(task)
        await toy.world.join(beside)
    trace = told([(presence, timeline)], toy)
    (mark,) = (event for event in trace["traceEvents"] if event["ph"] == "i")
    assert (mark["name"], ns(mark["ts"])) == ("cut: draft 500 ns", 120)
    assert trace_rules.lanes(trace, 1)[mark["tid"]] == "cpu"
    assert "draft 500 ns (cut)" in [block["name"] for block in blocks(trace, 1)]


async def _ask(unit: ToyUnit, timeline: Timeline, cost_ns: int) -> None:
    with timeline.task(Kind.DRAFT, f"{cost_ns} ns"):
        await unit.ask(cost_ns)


def test_an_arrow_begins_in_the_block_it_is_from_and_none_where_another_begins_there():
    process = Process(1, "p", ["a", "b"], 0, itertools.count(1))
    instant, block = Block("a", 7, 7), Block("a", 7, 8)
    for each in (instant, block):
        process.block(each, str(each.end_ns), "x", {})
        process.arrow(each, Block("b", 8, 9), "judged")
    assert [ns(event["ts"]) for event in process.events() if event["ph"] in "sf"] == [7, 8]


@pytest.mark.parametrize("at_ns", [0, 4, 9])
def test_an_arrow_is_told_after_its_block_and_before_an_instant_in_it(at_ns):
    process = Process(1, "p", ["a", "b"], 0, itertools.count(1))
    source, target = Block("a", 0, 10), Block("b", 10, 12)
    process.arrow(source, target, "judged")
    for lane, begins_ns in (("a", at_ns), ("b", 10)):
        process.instant(lane, begins_ns, "dropped")
    for block in (source, target):
        process.block(block, block.lane, "x", {})
    told = list(process.events())
    assert ["".join(e["ph"] for e in told if e["tid"] == tid and e["ph"] != "M") for tid in (1, 2)] == ["Xsi", "Xfi"]


@pytest.mark.parametrize("broken", ["overlap", "pair", "lane"])
def test_the_rules_find_what_is_broken(broken):
    process = Process(1, "p", ["a"], 0, itertools.count(1))
    process.block(Block("a", 0, 10), "x", "x", {})
    if broken == "overlap":
        process.block(Block("a", 9, 12), "x", "x", {})
    trace = {"traceEvents": list(process.events()), "displayTimeUnit": "ms"}
    if broken == "pair":
        trace["traceEvents"].append({"ph": "s", "name": "n", "cat": "c", "id": 1, "ts": 1, "pid": 1, "tid": 1})
    if broken == "lane":
        trace["traceEvents"][-1]["tid"] = 2
    with pytest.raises(AssertionError):
        trace_rules.check(trace)
