"""32 requests at once, a third of them cancelled at random moments: afterwards no unit holds anything."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from tests.system import Ask, Setup, System

REQUESTS = 32
MODES = ("plain", "chain", "tree", "lever", "ahasd", "full")


def asks_of(seed: int, max_tokens: int) -> list[Ask]:
    draw = random.Random(seed)
    return [
        Ask(
            tuple(draw.choices(range(3, 300), k=draw.choice((1, 20, 90, 200)))),
            MODES[number % len(MODES)],
            max_tokens,
            draw.choice((0.0, 0.8)),
            seed=number,
        )
        for number in range(REQUESTS)
    ]


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_cancelled_requests_leave_nothing_and_change_no_other(seed: int, tiny: Path, cache_dir: Path) -> None:
    """The prompts go in chunks of 16: some are cancelled before their first token."""
    draw, asks = random.Random(seed), asks_of(seed, max_tokens=40)
    cancelled = set(draw.sample(range(REQUESTS), REQUESTS // 3))
    async with System(Setup(tiny, cache_dir, draft=tiny, chunk_tokens=16)) as system:
        started = asyncio.get_running_loop().time()
        expected = [answer.tokens for answer in await system.generate_all(asks, at_once=REQUESTS)]
        whole_s = asyncio.get_running_loop().time() - started

        running = [asyncio.create_task(system.generate(ask)) for ask in asks]
        # The second run is the quicker one: in its first half, so that most are still running.
        moments = sorted((draw.uniform(0, whole_s / 2), number) for number in cancelled)
        started = asyncio.get_running_loop().time()
        for moment_s, number in moments:
            await asyncio.sleep(max(0, started + moment_s - asyncio.get_running_loop().time()))
            running[number].cancel()
        found = await asyncio.gather(*running, return_exceptions=True)

        await system.until_nothing_is_held()
    assert sum(isinstance(answer, asyncio.CancelledError) for answer in found) >= 3
    for number, answer in enumerate(found):
        if number not in cancelled:
            assert not isinstance(answer, BaseException)
            assert answer.tokens == expected[number]


async def test_an_orchestrator_that_vanishes_leaves_nothing(tiny: Path, cache_dir: Path) -> None:
    """The end of its streams frees what its requests held, though nobody released it."""
    async with System(Setup(tiny, cache_dir, draft=tiny)) as system:
        halfway = asyncio.Event()
        ask = Ask(tuple(range(10, 80)), "tree", max_tokens=400)
        running = asyncio.create_task(
            system.generate(ask, on_tokens=lambda tokens: halfway.set() if len(tokens) > 4 else None)
        )
        await halfway.wait()
        assert (await system.describe("verifier")).kv_held_tokens > 0
        assert (await system.describe("drafter")).kv_held_tokens > 0
        await system.engine.close()
        await system.until_nothing_is_held()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
