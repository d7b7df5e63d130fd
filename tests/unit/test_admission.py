from __future__ import annotations

import asyncio

import pytest

from orchestrator.api.admission import Admission
from orchestrator.api.errors import ApiError


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
