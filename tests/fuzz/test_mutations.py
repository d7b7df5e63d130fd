"""2,000 bent requests against the five services: no 5xx, no unit restarted, every refusal names its field."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.contract.fake_engine import FakeEngine, says
from tests.fuzz.checks import check
from tests.fuzz.mutations import mutated
from tests.system import Processes, Setup
from weight_store.config import embedded_model

AT_ONCE = 8


async def ask_all(client: httpx.AsyncClient, seed: int, count: int) -> dict[int, int]:
    """How often each status was answered."""
    statuses: dict[int, int] = {}
    room = asyncio.Semaphore(AT_ONCE)

    async def ask(path: str, body: bytes) -> None:
        async with room:
            response = await client.post(path, content=body, headers={"Content-Type": "application/json"})
        check(body, response)
        statuses[response.status_code] = statuses.get(response.status_code, 0) + 1

    await asyncio.gather(*(ask(path, body) for path, body in mutated(seed, count)))
    return statuses


async def test_2000_bent_requests_are_answered_or_refused_by_the_name_of_their_field(
    connect: Callable[..., Any],
) -> None:
    engine = FakeEngine(says("ok"))
    async with connect(engine) as client:
        statuses = await ask_all(client, seed=1, count=2000)
    assert statuses[200] > 100
    assert statuses[400] > 1000
    assert engine.open == 0


@pytest.mark.soak
async def test_2000_bent_requests_restart_no_unit_and_leave_nothing_held(tmp_path: Path) -> None:
    setup = Setup(embedded_model(), Path("~/.cache/hetspec").expanduser(), max_context=1024)
    async with Processes(setup, tmp_path) as system:
        before = {unit: (await system.describe(unit)).identity.instance for unit in ("verifier", "drafter", "sampler")}
        async with httpx.AsyncClient(base_url=system.url, timeout=300) as client:
            statuses = await ask_all(client, seed=2, count=2000)
        await system.settle()
        after = {unit: (await system.describe(unit)).identity.instance for unit in before}
        assert after == before
        assert all(process.poll() is None for process in system.running.values())
        for unit in before:
            assert "Traceback" not in system.log(unit)
    print(statuses)
