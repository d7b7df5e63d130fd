"""More requests than the KV has room for: they wait for each other, say what they would alone, and leave nothing."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from tests.system import Ask, Setup, System

MODES = ("plain", "chain", "tree")


@pytest.mark.parametrize("kv_tokens", [160, 512])
async def test_requests_wait_for_kv_and_say_what_they_would_alone(kv_tokens: int, tiny: Path, cache_dir: Path) -> None:
    asks = [Ask(tuple(range(20 + i, 60 + i)), MODES[i % 3], 32, 0.8, seed=i) for i in range(18)]
    setup = Setup(tiny, cache_dir)
    async with System(setup) as system:
        expected = [(await system.generate(ask)).tokens for ask in asks]
    async with System(replace(setup, kv_tokens=kv_tokens, draft=tiny)) as system:
        found = await asyncio.gather(*(system.generate(ask) for ask in asks))
        await system.until_nothing_is_held()
        assert (await system.generate(asks[0])).tokens == expected[0]
    assert [answer.tokens for answer in found] == expected
