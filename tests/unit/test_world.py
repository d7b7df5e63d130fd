"""Time in an emulated world, against times reckoned by hand, and what must add up whatever happens."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hetspec.hardware.energy import static_pj
from orchestrator.clock.clock import Arrival
from orchestrator.clock.pace import Paced
from orchestrator.clock.presence import REQUEST, Presence, time_of
from orchestrator.clock.world import NotPriced
from tests.toy_world import DYNAMIC_PJ, STATIC_UW, ToyUnit, ToyWorld

WITHIN_S = 5.0

Plan = list[tuple[int, list[tuple[bool, int]]]]  # of sessions: when they come; of their tasks: npu or cpu, how long
PLANS = st.lists(
    st.tuples(st.integers(0, 50), st.lists(st.tuples(st.booleans(), st.integers(0, 40)), max_size=5)),
    min_size=1,
    max_size=5,
)


async def run_plan(toy: ToyWorld, plan: Plan) -> list[Presence]:
    async with asyncio.timeout(WITHIN_S):
        return await asyncio.gather(
            *(
                toy.session(
                    *((toy.npu if on_npu else toy.cpu, ns) for on_npu, ns in tasks), after_ns=at, sessions=len(plan)
                )
                for at, tasks in plan
            )
        )


def times(presences: Sequence[Presence]) -> list[tuple[int, int, list[int]]]:
    return [(presence.arrival_ns, presence.end_ns, presence.token_ns) for presence in presences]


def static_of_all(until_ns: int) -> Counter[str]:
    return Counter({device: static_pj(uw, 0, until_ns) for device, uw in STATIC_UW.items()})


async def test_tasks_one_after_another_take_the_sum_of_their_times():
    toy = ToyWorld()
    presence = await toy.session((toy.npu, 100), (toy.cpu, 30), (toy.npu, 5))
    assert (presence.total_ns, presence.token_ns) == (135, [100, 130, 135])
    assert presence.busy_ns == {"npu": 105, "cpu": 30}
    assert presence.time_ns() == {("npu", "compute"): 105, ("cpu", "compute"): 30}


async def test_tasks_of_two_devices_that_a_session_spawns_overlap():
    toy = ToyWorld()
    async with toy.world.present(None) as presence:
        beside = toy.world.spawn(toy.cpu.ask(70))
        assert await toy.npu.ask(100) == 100
        assert await toy.world.join(beside) == 70
    assert presence.total_ns == 100
    assert presence.time_ns() == {("npu", "compute"): 100, ("cpu", "compute"): 70, (REQUEST, "overlapped"): -70}


async def test_join_waits_for_the_longer_of_two_tasks():
    toy = ToyWorld()
    async with toy.world.present(None) as presence:
        beside = toy.world.spawn(toy.cpu.ask(170))
        await toy.npu.ask(100)
        await toy.world.join(beside)
    assert presence.total_ns == 170


async def test_two_units_that_share_a_device_take_turns_by_their_arrivals():
    toy = ToyWorld()
    other = ToyUnit(toy.world, "npu", 2)
    first, second = await asyncio.gather(
        toy.session((toy.npu, 100), sessions=2), toy.session((other, 30), after_ns=10, sessions=2)
    )
    assert (first.total_ns, second.total_ns) == (100, 120)
    assert second.time_ns() == {("npu", "waited"): 90, ("npu", "compute"): 30}
    assert toy.npu.spans + other.spans == [(0, 100), (100, 130)]


async def test_a_workload_begins_when_all_that_were_announced_are_there():
    toy = ToyWorld()
    first = asyncio.create_task(toy.session((toy.npu, 10), after_ns=5, sessions=2))
    for _ in range(20):
        await asyncio.sleep(0)
    assert (toy.world.now_ns(), toy.npu.spans) == (0, [])
    second = await toy.session((toy.npu, 10), after_ns=7, sessions=2)
    assert (await first).arrival_ns == 5
    assert (second.arrival_ns, second.total_ns) == (7, 18)


async def test_time_of_an_idle_world_stands_still():
    toy = ToyWorld()
    await toy.session((toy.npu, 10))
    await asyncio.sleep(0.01)
    assert (await toy.session((toy.npu, 10))).arrival_ns == 10


@settings(deadline=None, max_examples=60)
@given(plan=PLANS, data=st.data())
def test_times_do_not_depend_on_how_long_the_host_takes(plan, data):
    want = times(asyncio.run(_run(plan, lambda: 0))[1])
    delays = data.draw(st.lists(st.integers(0, 12), min_size=1, max_size=30))
    taken = iter(range(1 << 30))
    assert times(asyncio.run(_run(plan, lambda: delays[next(taken) % len(delays)]))[1]) == want


async def _run(plan: Plan, delay) -> tuple[ToyWorld, list[Presence]]:
    toy = ToyWorld(delay)
    return toy, await run_plan(toy, plan)


@settings(deadline=None, max_examples=60)
@given(plan=PLANS)
def test_time_and_energy_add_up(plan):
    toy, presences = asyncio.run(_run(plan, lambda: 1))
    tasks_ns = sum(ns for _, tasks in plan for _, ns in tasks)
    for presence in presences:
        assert sum(presence.time_ns().values()) == presence.total_ns
    assert time_of(presences).total() == max(p.end_ns for p in presences) - min(p.arrival_ns for p in presences)
    energy: Counter[str] = Counter(toy.world.unowned_pj)
    for presence in presences:
        for (device, _), pj in presence.energy_pj().items():
            energy[device] += pj
    assert energy.total() == static_of_all(toy.world.now_ns()).total() + DYNAMIC_PJ * tasks_ns
    busy = toy.world.hardware.devices.busy_ns(toy.world.now_ns())
    for device, unit in (("npu", toy.npu), ("cpu", toy.cpu)):
        assert busy[device] == sum(end - begin for begin, end in unit.spans) <= toy.world.now_ns()
        ordered = sorted(unit.spans)
        assert all(end <= begin for (_, end), (begin, _) in pairwise(ordered))


async def test_power_drawn_while_nobody_is_there_is_nobodys():
    toy = ToyWorld()
    presence = await toy.session((toy.npu, 100), after_ns=1000)
    assert toy.world.unowned_pj == static_of_all(1000)
    assert presence.static_pj == static_of_all(1100) - static_of_all(1000)


@pytest.mark.parametrize("turns", range(1, 9))
async def test_a_session_that_is_cancelled_at_any_moment_holds_nobody_up(turns):
    toy = ToyWorld(lambda: 2)
    leaver = asyncio.create_task(toy.session((toy.npu, 40), (toy.cpu, 60), sessions=2))
    stayer = asyncio.create_task(toy.session((toy.npu, 100), (toy.npu, 10), sessions=2))
    for _ in range(turns):
        await asyncio.sleep(0)
    leaver.cancel()
    async with asyncio.timeout(WITHIN_S):
        with pytest.raises(asyncio.CancelledError):
            await leaver
        presence = await stayer
        await toy.session((toy.cpu, 20))
    assert presence.token_ns in ([100, 110], [140, 150])
    done_ns = sum(end - begin for unit in (toy.npu, toy.cpu) for begin, end in unit.spans)
    assert toy.world.now_ns() >= presence.end_ns + 20
    assert done_ns >= 130


async def test_an_announced_session_that_leaves_before_the_workload_begins_counts_no_more():
    toy = ToyWorld()
    leaver = asyncio.create_task(toy.session((toy.npu, 40), sessions=2))
    await asyncio.sleep(0)
    leaver.cancel()
    async with asyncio.timeout(WITHIN_S):
        with pytest.raises(asyncio.CancelledError):
            await leaver
        both = await asyncio.gather(*(toy.session((toy.npu, 10), sessions=2) for _ in range(2)))
    assert sorted(presence.total_ns for presence in both) == [10, 20]


async def test_a_lost_unit_fails_what_it_held_and_time_goes_on():
    toy = ToyWorld(lambda: 3)
    held = asyncio.create_task(toy.session((toy.npu, 40), sessions=2))
    other = asyncio.create_task(toy.session((toy.cpu, 60), (toy.cpu, 1), sessions=2))
    while not toy.npu._held:
        await asyncio.sleep(0)
    toy.npu.lose()
    async with asyncio.timeout(WITHIN_S):
        with pytest.raises(ConnectionError):
            await held
        assert (await other).total_ns == 61


async def test_a_task_that_cannot_be_priced_fails_and_takes_no_time():
    toy = ToyWorld()
    with pytest.raises(NotPriced, match="outside the table"):
        await toy.session((toy.npu, -1))
    assert (await toy.session((toy.npu, 7))).arrival_ns == 0


async def test_a_session_that_is_away_lets_time_pass():
    toy = ToyWorld()
    done = asyncio.Event()

    async def waits() -> Presence:
        async with toy.world.present(Arrival(0, 2)) as presence:
            with toy.world.away():
                await done.wait()
        return presence

    async def works() -> Presence:
        worked = await toy.session((toy.npu, 25), sessions=2)
        done.set()
        return worked

    async with asyncio.timeout(WITHIN_S):
        presence, worked = await asyncio.gather(waits(), works())
    assert presence.total_ns == 25
    assert presence.time_ns() == {(REQUEST, "waited"): 25}
    assert time_of([presence, worked]) == {("npu", "compute"): 25}  # one request's: the other is what it waits for


class FakeWall:
    """A wall clock that goes on by `step_s` with every look at it."""

    def __init__(self, step_s: float) -> None:
        self.now_s, self.step_s = 100.0, step_s

    def __call__(self) -> float:
        self.now_s += self.step_s
        return self.now_s


@pytest.mark.parametrize("factor", [0.5, 1.0, 8.0])
async def test_paced_time_never_passes_wall_time_times_the_factor(factor):
    wall = FakeWall(step_s=1e-6)
    pace = Paced(factor, wall)
    toy = ToyWorld(pace=pace)
    begun_s = pace._begun_s
    seen = []

    async def session() -> None:
        async with toy.world.present(None):
            for _ in range(20):
                now_ns = await toy.npu.ask(50_000)
                seen.append(now_ns <= (wall.now_s - begun_s) * factor * 1e9)

    async def tick() -> None:
        while len(seen) < 20:
            wall.now_s += 20e-6
            await asyncio.sleep(0)

    async with asyncio.timeout(WITHIN_S):
        await asyncio.gather(session(), tick())
    assert seen == [True] * 20


async def test_a_host_that_cannot_keep_up_reports_its_lag():
    wall = FakeWall(step_s=0.0)
    toy = ToyWorld(pace=Paced(1.0, wall))
    async with toy.world.present(None) as presence:
        wall.now_s += 1.0  # the host takes a second before a task of a microsecond
        await toy.npu.ask(1_000)
    assert presence.lag_ns == pytest.approx(1e9, abs=2_000)
