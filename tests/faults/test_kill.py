"""Processes stopped in the middle of requests, in every way: requests wait, go on, and say the same."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import httpx
import pytest

from tests.system import Ask, Processes, Setup, System, until, until_async

TOKENS = 120
PROMPT = tuple(range(30, 120))
UNITS = ("verifier", "drafter", "sampler")
Action = Callable[[], object]


def asks_of() -> list[Ask]:
    return [
        Ask(PROMPT[number:], mode, TOKENS, temperature, seed=number)
        for number, mode in enumerate(("plain", "chain", "tree"))
        for temperature in (0.0, 0.8)
    ]


def setup_of(precision: str, tiny: Path, cache_dir: Path) -> Setup:
    return Setup(tiny, cache_dir, draft=tiny, precision=precision, chunk_tokens=32)


@pytest.fixture
async def processes(tiny: Path, cache_dir: Path, tmp_path: Path) -> AsyncIterator[Processes]:
    async with Processes(setup_of("int8", tiny, cache_dir), tmp_path) as started:
        yield started


async def tokens_of(setup: Setup, asks: Sequence[Ask]) -> list[list[int]]:
    """Of a system that nobody disturbs."""
    async with System(setup) as system:
        return [(await system.generate(ask)).tokens for ask in asks]


async def tokens_despite(processes: Processes, asks: Sequence[Ask], action: Action) -> list[list[int]]:
    """All asks at once; `action` strikes when the first of them has given a quarter of its tokens."""
    struck: list[int] = []

    def strike(tokens: list[int]) -> None:
        if not struck and len(tokens) >= TOKENS // 4:
            struck.append(len(tokens))
            action()

    first, *others = asks
    answers = await asyncio.gather(
        processes.generate(first, on_tokens=strike), *(processes.generate(ask) for ask in others)
    )
    assert struck
    assert struck[0] < len(answers[0].tokens)
    return [answer.tokens for answer in answers]


@pytest.mark.parametrize("precision", ["int8", "float32"])
async def test_a_unit_killed_in_the_middle_changes_no_token(
    precision: str, tiny: Path, cache_dir: Path, tmp_path: Path
) -> None:
    setup, asks = setup_of(precision, tiny, cache_dir), asks_of()
    expected = await tokens_of(setup, asks)
    async with Processes(setup, tmp_path) as processes:
        for unit in UNITS:
            before = (await processes.describe(unit)).identity
            found = await tokens_despite(processes, asks, lambda unit=unit: processes.restart(unit))
            assert found == expected, unit
            await until(lambda unit=unit: bool(processes.engine.replicas()[unit]), timeout_s=120)
            after = (await processes.describe(unit)).identity
            assert (after.digest, after.instance == before.instance) == (before.digest, False)
        await processes.until_nothing_is_held()


@pytest.mark.parametrize("unit", ["verifier", "sampler"])
async def test_a_unit_that_freezes_and_thaws_changes_no_token(unit: str, processes: Processes) -> None:
    """The connection is given up after a few seconds of silence, and found again."""
    asks = asks_of()
    expected = await tokens_of(processes.setup, asks)

    def freeze() -> None:
        processes.signal(unit, signal.SIGSTOP)
        asyncio.get_running_loop().call_later(8.0, processes.signal, unit, signal.SIGCONT)

    assert await tokens_despite(processes, asks, freeze) == expected
    await processes.until_nothing_is_held()


async def test_requests_outlive_the_weight_store_and_a_unit_waits_for_it(processes: Processes) -> None:
    asks = asks_of()
    expected = await tokens_of(processes.setup, asks)
    assert await tokens_despite(processes, asks, lambda: processes.kill("weight_store")) == expected

    def restart_later() -> None:
        processes.restart("verifier")
        asyncio.get_running_loop().call_later(3.0, processes.start, "weight_store")

    assert await tokens_despite(processes, asks, restart_later) == expected
    await processes.until_nothing_is_held()


async def test_every_service_may_end_and_come_back_under_http_requests(processes: Processes) -> None:
    """A unit's end is a pause; the orchestrator's own ends its requests, and nothing of them is left."""
    body = {"prompt": list(PROMPT), "max_tokens": TOKENS, "temperature": 0.0}
    expected = text_of(await processes.stream(body))
    for name in ("weight_store", *UNITS):
        for number in (signal.SIGTERM, signal.SIGKILL):
            assert text_of(await processes.stream(body, at_third_chunk(lambda: end(processes, name, number)))) == expected
        await until_async(processes.answers, 120)
    with pytest.raises(httpx.TransportError):
        await processes.stream(body, at_third_chunk(lambda: end(processes, "orchestrator", signal.SIGKILL)))
    await processes.until_nothing_is_held()
    await until_async(processes.answers, 120)
    assert text_of(await processes.stream(body)) == expected


def end(processes: Processes, name: str, number: signal.Signals) -> None:
    """Ends it and starts it again on its port as soon as it is gone."""
    process = processes.running[name]
    process.send_signal(number)

    async def start_when_gone() -> None:
        await until(lambda: process.poll() is not None)
        processes.start(name)

    processes.background(start_when_gone())


def at_third_chunk(action: Action) -> Action:
    left = iter((False, False, True))
    return lambda: action() if next(left, False) else None


def text_of(chunks: Sequence[dict[str, object]]) -> str:
    """Of a stream that came to its end."""
    assert not [chunk for chunk in chunks if "error" in chunk]
    choices = [chunk["choices"][0] for chunk in chunks]
    assert choices[-1]["finish_reason"] == "length"
    return "".join(choice["text"] for choice in choices)
