from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.api.admission import Admission
from orchestrator.api.errors import ApiError
from orchestrator.engine.errors import DeadlineExceeded


async def test_waiting_requests_are_let_in_in_order_of_arrival():
    admission = Admission(max_running=1, max_queued=8)
    order: list[int] = []

    async def request(number: int) -> None:
        async with admission.slot():
            order.append(number)
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        for number in range(9):
            group.create_task(request(number))
            await asyncio.sleep(0)
    assert order == list(range(9))
    assert admission.idle


async def test_no_more_run_at_once_than_allowed_whatever_is_cancelled():
    admission = Admission(max_running=3, max_queued=100)
    most = 0

    async def request() -> None:
        nonlocal most
        async with admission.slot():
            most = max(most, admission.running)
            await asyncio.sleep(0.001)

    tasks = [asyncio.create_task(request()) for _ in range(60)]
    for number, task in enumerate(tasks):
        if number % 3 == 0:
            await asyncio.sleep(0)
            task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert most == 3
    assert admission.idle


async def test_slot_is_given_back_when_its_request_fails():
    admission = Admission(max_running=1, max_queued=0)
    for _ in range(2):
        with pytest.raises(KeyError):
            async with admission.slot():
                raise KeyError
    assert admission.idle


async def test_draining_refuses_with_503():
    admission = Admission(max_running=1, max_queued=1)
    admission.draining = True
    with pytest.raises(ApiError) as refused:
        admission.check()
    assert refused.value.status == 503


async def held(admission: Admission, client: str = "", count: int = 1) -> asyncio.Task[None]:
    """A request that holds its places until it is cancelled; it waits for them, or has them."""

    async def request() -> None:
        async with admission.slot(client, count):
            await asyncio.Event().wait()

    task = asyncio.create_task(request())
    await asyncio.sleep(0)
    return task


async def end(*tasks: asyncio.Task[None]) -> list[BaseException | None]:
    for task in tasks:
        task.cancel()
    return list(await asyncio.gather(*tasks, return_exceptions=True))


async def test_a_request_takes_the_places_of_all_its_choices_at_once_and_is_not_passed_meanwhile():
    admission = Admission(max_running=4, max_queued=10)
    three = await held(admission, count=3)
    two = await held(admission, count=2)
    one = await held(admission, count=1)
    assert (admission.running, admission.queued) == (3, 3)
    await end(three)
    assert (admission.running, admission.queued) == (3, 0)
    await end(two, one)
    assert admission.idle


async def test_one_that_gives_up_waiting_lets_in_those_it_held_up():
    admission = Admission(max_running=4, max_queued=10)
    running = [await held(admission, count=3), await held(admission, count=4), await held(admission, count=1)]
    assert (admission.running, admission.queued) == (3, 5)
    await end(running[1])
    assert (admission.running, admission.queued) == (4, 0)
    await end(running[0], running[2])
    assert admission.idle


@pytest.mark.parametrize("running", [0, 3])
async def test_more_choices_than_can_ever_run_is_400_and_names_the_field(running):
    admission = Admission(max_running=4, max_queued=10)
    holder = await held(admission, count=running) if running else None
    with pytest.raises(ApiError) as refused:
        admission.check(count=5, param="n")
    assert (refused.value.status, refused.value.param) == (400, "n")
    if holder:
        await end(holder)


async def test_a_full_queue_makes_room_for_a_client_below_its_share_and_the_displaced_is_told_429():
    admission = Admission(max_running=1, max_queued=4)
    greedy = [await held(admission, "greedy") for _ in range(5)]
    with pytest.raises(ApiError) as refused:
        admission.check("greedy")
    assert refused.value.status == 429
    modest = await held(admission, "modest")
    assert admission.queued == 4
    await asyncio.wait(greedy, timeout=1, return_when=asyncio.FIRST_COMPLETED)
    displaced = greedy[-1].exception()
    assert isinstance(displaced, ApiError)
    assert displaced.status == 429
    await end(greedy[0])
    await asyncio.sleep(0)
    await end(greedy[1])
    await asyncio.sleep(0)
    assert not modest.done()
    assert (admission.running, admission.queued) == (1, 2)  # the second of all places went to the modest one
    await end(modest)
    assert (admission.running, admission.queued) == (1, 1)
    await end(*greedy)
    assert admission.idle


async def test_a_deadline_covers_the_wait():
    admission = Admission(max_running=1, max_queued=4)
    holder = await held(admission)
    with pytest.raises(DeadlineExceeded):
        async with admission.slot(deadline=asyncio.get_running_loop().time() + 0.01):
            pytest.fail("it was let in")
    assert admission.queued == 0
    await end(holder)
    assert admission.idle


async def test_retry_after_is_what_recent_requests_took_shared_among_those_that_run():
    now = 0.0
    admission = Admission(max_running=2, max_queued=1, clock=lambda: now)
    for _ in range(100):
        pair = [await held(admission), await held(admission)]
        now += 10.0
        await end(*pair)
    tasks = [await held(admission) for _ in range(3)]
    with pytest.raises(ApiError) as refused:
        admission.check()
    assert refused.value.headers == {"Retry-After": "5"}
    await end(*tasks)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(1, 5), st.integers(0, 6), st.integers(0, 6), st.booleans()),
        max_size=40,
    )
)
def test_whatever_arrives_ends_and_is_cancelled_no_place_is_lost_or_given_twice(requests):
    async def scenario() -> None:
        admission = Admission(max_running=4, max_queued=6)
        holding = 0

        async def request(client: str, count: int, turns: int) -> None:
            nonlocal holding
            async with admission.slot(client, count):
                holding += count
                assert holding <= admission.running <= 4
                try:
                    for _ in range(turns):
                        await asyncio.sleep(0)
                finally:
                    holding -= count

        tasks = []
        for client, count, turns, pause, cancels in requests:
            tasks.append(asyncio.create_task(request(client, count, turns)))
            for _ in range(pause):
                await asyncio.sleep(0)
            if cancels:
                tasks[len(tasks) // 2].cancel()
            assert holding <= admission.running <= 4
            assert admission.queued <= 6
        for ended in await asyncio.gather(*tasks, return_exceptions=True):
            assert ended is None or isinstance(ended, ApiError | asyncio.CancelledError)
        assert admission.idle
        assert holding == 0

    asyncio.run(scenario())
