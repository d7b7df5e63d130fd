"""Command and SDK against the real system: model, units, engine and HTTP server, all of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from hetspec_client import AsyncClient
from orchestrator.engine.engine import Engine
from tests.clients.command import COMMAND, environ
from tests.clients.servers import served
from tests.models import make_checkpoint
from tests.system import Setup, System, engine_settings, until_async

MODES = ("plain", "chain", "tree")
PROMPT = "one two one two one two 🙂"
OPTIONS: dict[str, Any] = {"max_tokens": 24, "seed": 5, "temperature": 0.8}


@pytest.fixture
async def url(tmp_path: Path) -> AsyncIterator[str]:
    """Of a random model: its text is full of broken characters."""
    checkpoint = make_checkpoint(tmp_path / "tiny", "qwen3")
    async with System(Setup(checkpoint, tmp_path / "cache", max_context=256)) as system:
        async with served(Engine(system.addresses, engine_settings())) as url, AsyncClient(url) as client:
            await until_async(lambda: ready(client), 60.0)
            yield url
        await system.until_nothing_is_held()


async def ready(client: AsyncClient) -> bool:
    readiness = await client.readiness()
    return readiness.status == "ready" and all(readiness.replicas.values())


async def hetspec(url: str, *arguments: str) -> tuple[int | None, str, str]:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *COMMAND, *arguments, env=environ(url), stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe
    )
    told, noted = await process.communicate()
    return process.returncode, told.decode(), noted.decode()


async def test_command_and_sdk_tell_the_same_text_in_every_mode_streamed_and_whole(url):
    texts = set()
    async with AsyncClient(url) as client:
        for mode in MODES:
            whole = await client.complete(PROMPT, mode=mode, **OPTIONS)
            async with await client.stream_complete(PROMPT, mode=mode, **OPTIONS) as stream:
                streamed = "".join([chunk.text async for chunk in stream])
            assert stream.answer.text == streamed
            assert stream.answer.usage == whole.usage
            assert whole.statistics is not None
            assert whole.statistics.mode == mode
            texts |= {whole.text, streamed}
    options = [word for name, value in OPTIONS.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    code, shown, noted = await hetspec(url, "generate", "--raw", PROMPT, "--mode", "chain", *options)
    assert code == 0
    assert "mode chain" in noted
    _, told, _ = await hetspec(url, "generate", "--raw", PROMPT, "--json", *options)
    texts |= {shown.removesuffix("\n"), json.loads(told)["choices"][0]["text"]}
    assert len(texts) == 1
    assert len(texts.pop()) > 5
