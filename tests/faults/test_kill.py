"""Processes stopped in the middle of requests, in every way: requests wait, go on, and say the same.

In float32; test_stack and test_structured_output kill units of int8.
"""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from pathlib import Path

import httpx
import pytest
import pytest_asyncio

from orchestrator.engine.pre_verifying import UNKNOWN
from tests.draft_checks import DraftChecks
from tests.prompts import chat_ids, spread
from tests.system import SERVICES, Ask, Processes, Setup, System, until, until_async
from weight_store.config import embedded_model

pytestmark = pytest.mark.asyncio(loop_scope="module")

TOKENS = 120
PROMPT = tuple(range(30, 120))
BODY = {"prompt": list(PROMPT), "max_tokens": TOKENS, "temperature": 0.0, "ignore_eos": True}
UNITS = ("verifier", "drafter", "sampler")
Action = Callable[[], object]


def asks_of() -> list[Ask]:
    return [
        Ask(PROMPT[number:], mode, TOKENS, temperature, seed=number)
        for number, mode in enumerate(("plain", "chain", "tree", "ahasd", "full"))
        for temperature in (0.0, 0.8)
    ]


def setup_of(tiny: Path, cache_dir: Path) -> Setup:
    return Setup(tiny, cache_dir, draft=tiny, precision="float32", chunk_tokens=32, holds_target=True)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def processes(tiny: Path, cache_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Processes]:
    async with Processes(setup_of(tiny, cache_dir), tmp_path_factory.mktemp("logs")) as started:
        yield started


async def tokens_of(setup: Setup, asks: Sequence[Ask]) -> list[list[int]]:
    """Of a system that nobody disturbs."""
    async with System(setup) as system:
        return [answer.tokens for answer in await system.generate_all(asks)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def expected(tiny: Path, cache_dir: Path) -> list[list[int]]:
    """Of `asks_of()`."""
    return await tokens_of(setup_of(tiny, cache_dir), asks_of())


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


@pytest.mark.parametrize("unit", UNITS)
async def test_a_unit_killed_in_the_middle_changes_no_token(
    unit: str, processes: Processes, expected: list[list[int]]
) -> None:
    before = (await processes.describe(unit)).identity
    assert await tokens_despite(processes, asks_of(), lambda: processes.cycle(unit, signal.SIGKILL)) == expected
    await processes.settle()
    after = (await processes.describe(unit)).identity
    assert after.digest == before.digest
    assert after.instance != before.instance


async def test_a_drafter_killed_under_its_checks_leaves_them_unknown_until_it_is_back(
    processes: Processes, expected: list[list[int]]
) -> None:
    """A check that is answered is right, whenever the drafter dies."""
    one, fleet = DraftChecks(processes.engine, asks_of()[1].request(), expected[1]), processes.engine._fleet
    await until(lambda: bool(fleet.pre_verifiers.replicas))
    answers: list[bool] = []
    processes.after(0.3, lambda: processes.cycle("drafter", signal.SIGKILL))
    async with asyncio.timeout(60):
        while not (processes.all_done and False in answers and answers[-1]):
            one.sit_down()
            tokens = one.drafted(3)
            found = await one.check(tokens)
            assert found in (one.confirmed(tokens), UNKNOWN)
            answers.append(found != UNKNOWN)
            one.decide(1 if len(one.coming) > 4 else 0)
            await asyncio.sleep(0.02)
    one.session.release()
    await processes.settle()


@pytest.mark.soak
@pytest.mark.parametrize("precision", ["int8", "float32"])
@pytest.mark.parametrize("unit", UNITS)
async def test_a_unit_killed_in_the_middle_changes_no_token_of_the_real_model(
    unit: str, precision: str, cache_dir: Path, tmp_path: Path
) -> None:
    setup = Setup(embedded_model(), cache_dir, precision=precision, max_context=2048)
    asks = [Ask(chat_ids(prompt), "tree", 96, 0.8, seed=number) for number, prompt in enumerate(spread(8))]
    expected = await tokens_of(setup, asks)
    async with Processes(setup, tmp_path) as processes:
        assert await tokens_despite(processes, asks, lambda: processes.cycle(unit, signal.SIGKILL)) == expected
        await processes.settle()


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(12))
async def test_a_service_that_stops_at_any_moment_changes_no_token(
    seed: int, processes: Processes, expected: list[list[int]]
) -> None:
    draw = random.Random(seed)
    name, number = draw.choice(SERVICES[:4]), draw.choice((signal.SIGKILL, signal.SIGTERM))
    processes.after(draw.uniform(0, 1.5), lambda: processes.cycle(name, number))
    while not processes.all_done:
        answers = await processes.generate_all(asks_of())
        assert [answer.tokens for answer in answers] == expected
    await processes.settle()


async def test_a_verifier_that_freezes_and_thaws_changes_no_token(
    processes: Processes, expected: list[list[int]]
) -> None:
    """The connection is given up after a few seconds of silence, and found again."""

    def freeze() -> None:
        processes.signal("verifier", signal.SIGSTOP)
        processes.after(8.0, lambda: processes.signal("verifier", signal.SIGCONT))

    assert await tokens_despite(processes, asks_of(), freeze) == expected
    await processes.settle()


async def test_requests_outlive_the_weight_store_and_a_unit_waits_for_it(
    processes: Processes, expected: list[list[int]]
) -> None:
    assert await tokens_despite(processes, asks_of(), lambda: processes.kill("weight_store")) == expected

    def restart_before_the_store() -> None:
        processes.cycle("verifier", signal.SIGKILL)
        processes.after(3.0, lambda: processes.start("weight_store"))

    assert await tokens_despite(processes, asks_of(), restart_before_the_store) == expected
    await processes.settle()


@pytest.mark.parametrize("name", ["weight_store", *UNITS])
async def test_a_service_told_to_end_comes_back_under_an_http_request(name: str, processes: Processes) -> None:
    expected = text_of(await processes.stream(BODY))
    chunks = await processes.stream(BODY, at_third_chunk(lambda: processes.cycle(name, signal.SIGTERM)))
    assert text_of(chunks) == expected
    await processes.settle()


async def test_an_orchestrator_that_is_killed_leaves_nothing_and_comes_back(processes: Processes) -> None:
    expected = text_of(await processes.stream(BODY))
    with pytest.raises(httpx.TransportError):
        await processes.stream(BODY, at_third_chunk(lambda: processes.cycle("orchestrator", signal.SIGKILL)))
    await processes.settle()
    assert text_of(await processes.stream(BODY)) == expected


async def test_an_orchestrator_told_to_end_finishes_what_runs_and_refuses_the_rest(processes: Processes) -> None:
    """A frozen sampler holds up two requests, one streamed, until the third has been refused."""
    expected = text_of(await processes.stream(BODY))
    async with httpx.AsyncClient(base_url=processes.url, timeout=60) as client:
        streamed = asyncio.create_task(processes.stream(BODY))
        whole = asyncio.create_task(client.post("/v1/completions", json=BODY))
        await until_async(partial(sessions_are, processes, 2))
        processes.signal("sampler", signal.SIGSTOP)
        process = processes.running["orchestrator"]
        process.send_signal(signal.SIGTERM)
        try:
            await until_async(partial(is_draining, client))
            refused = await client.post("/v1/completions", json=BODY)
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "shutting_down")
        finally:
            processes.signal("sampler", signal.SIGCONT)
        assert text_of(await streamed) == expected
        assert (await whole).json()["choices"][0]["text"] == expected
    await until(lambda: process.poll() is not None)
    assert process.returncode == 0
    del processes.running["orchestrator"]
    processes.start("orchestrator")
    await processes.settle()


async def sessions_are(processes: Processes, count: int) -> bool:
    return bool((await processes.describe("verifier")).sessions == count)


async def is_draining(client: httpx.AsyncClient) -> bool:
    return bool((await client.get("/readyz")).json()["status"] == "draining")


def at_third_chunk(action: Action) -> Action:
    left = iter((False, False, True))
    return lambda: action() if next(left, False) else None


def text_of(chunks: Sequence[dict[str, object]]) -> str:
    """Of a stream that came to its end."""
    assert not [chunk for chunk in chunks if "error" in chunk]
    choices = [chunk["choices"][0] for chunk in chunks]
    assert choices[-1]["finish_reason"] == "length"
    return "".join(choice["text"] for choice in choices)
