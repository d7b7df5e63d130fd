"""More requests than the KV has room for: some are given up, the others say what they would alone, nothing is left."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.engine.errors import UnitsUnavailable
from tests.system import Answer, Ask, Setup, System

MODES = ("plain", "chain", "tree")


@pytest.mark.parametrize("kv_tokens", [128, 512])
async def test_full_kv_fails_requests_and_never_a_token(kv_tokens: int, tiny: Path, cache_dir: Path) -> None:
    asks = [Ask(tuple(range(20 + i, 60 + i)), MODES[i % 3], 32, 0.8, seed=i) for i in range(18)]
    setup = Setup(tiny, cache_dir)
    async with System(setup) as system:
        expected = [(await system.generate(ask)).tokens for ask in asks]
    async with System(replace(setup, kv_tokens=kv_tokens, draft=tiny)) as system:
        found = await asyncio.gather(*(system.generate(ask) for ask in asks), return_exceptions=True)
        await system.until_nothing_is_held()
        assert (await system.generate(asks[0])).tokens == expected[0]
    assert any(isinstance(answer, Answer) for answer in found)
    for answer, tokens in zip(found, expected, strict=True):
        if isinstance(answer, Answer):
            assert answer.tokens == tokens
        else:
            assert isinstance(answer, UnitsUnavailable)
            assert "EXHAUSTED" in str(answer)
