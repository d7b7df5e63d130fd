"""More requests than the KV has room for: they wait for each other, say what they would alone, and leave nothing."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from tests.system import Ask, Setup, System

pytestmark = pytest.mark.asyncio(loop_scope="module")

MODES = ("plain", "chain", "tree", "lever", "ahasd", "full")
ASKS = [Ask(tuple(range(20 + i, 60 + i)), MODES[i % len(MODES)], 32, 0.8, seed=i) for i in range(18)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def expected(tiny: Path, cache_dir: Path) -> list[list[int]]:
    """Of each request alone, by plain decoding."""
    async with System(Setup(tiny, cache_dir)) as system:
        return [(await system.generate(replace(ask, mode="plain"))).tokens for ask in ASKS]


@pytest.mark.parametrize("kv_tokens", [160, 512])
async def test_requests_wait_for_kv_and_say_what_they_would_alone(
    kv_tokens: int, tiny: Path, cache_dir: Path, expected: list[list[int]]
) -> None:
    async with System(Setup(tiny, cache_dir, kv_tokens=kv_tokens, draft=tiny)) as system:
        found = await asyncio.gather(*(system.generate(ask) for ask in ASKS))
        await system.until_nothing_is_held()
        assert (await system.generate(ASKS[0])).tokens == expected[0]
    assert [answer.tokens for answer in found] == expected
