"""Load and time as a client meets them: places, the queue, deadlines; and what a client leaves behind that goes."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import openai
import pytest

from tests.contract.fake_engine import FakeEngine, says
from tests.contract.running import CHAT, HELLO, Gated, serve, wait_for
from tests.fakes import World, fast_settings

COMPLETIONS = "/v1/completions"
DEADLINE = {"type": "server_error", "param": None, "code": "deadline_exceeded"}


@pytest.mark.parametrize(
    ("value", "message"),
    [(0, "greater than 0"), (-1, "greater than 0"), ("5", "number"), (True, "number"), (61, "at most 60 s")],
)
async def test_a_timeout_out_of_bounds_is_refused_by_name(connect, value, message):
    engine = FakeEngine(says("never"))
    async with connect(engine, request_timeout_s=60) as client:
        for path, body in ((CHAT, HELLO), (COMPLETIONS, {"prompt": "hi"})):
            answer = await client.post(path, json=body | {"timeout": value})
            error = answer.json()["error"]
            assert (answer.status_code, error["param"]) == (400, "timeout")
            assert message in error["message"]
    assert engine.requests == []


@pytest.mark.parametrize(
    ("asked", "expected"), [({}, 60), ({"timeout": 60}, 60), ({"timeout": 1.5}, 1.5), ({"timeout": None}, 60)]
)
async def test_a_request_has_the_time_it_asks_for_or_the_servers(connect, asked, expected):
    engine = FakeEngine(says("x"))
    async with connect(engine, request_timeout_s=60) as client:
        started = asyncio.get_running_loop().time()
        assert (await client.post(CHAT, json=HELLO | asked)).status_code == 200
    deadline = engine.requests[0].deadline
    assert deadline is not None
    assert expected <= deadline - started <= expected + 10


@pytest.mark.parametrize("stream", [False, True])
async def test_a_deadline_covers_the_wait_for_a_place(stream):
    script = Gated(early=False)
    engine = FakeEngine(script)
    async with serve(engine, max_running=1) as running:
        first = asyncio.create_task(running.client.post(CHAT, json=HELLO))
        await script.started.wait()
        late = await running.client.post(CHAT, json=HELLO | {"timeout": 0.05, "stream": stream})
        assert running.admission.queued == 0
        script.gate.set()
        assert (await first).status_code == 200
    error = late.json()["error"]
    assert (late.status_code, {name: error[name] for name in DEADLINE}) == (504, DEADLINE)
    assert len(engine.requests) == 1


@pytest.fixture
async def world():
    """Its units' own time limits are long: what ends here ends for the request's sake."""
    async with World(settings=fast_settings(task_timeout_s=60.0)) as made:
        yield made


def hold(world: World) -> None:
    for unit in world.verifiers:
        unit.engine.gate.clear()


def let_go(world: World) -> None:
    for unit in world.verifiers:
        unit.engine.gate.set()


@pytest.mark.parametrize("stream", [False, True])
async def test_a_deadline_before_the_first_token_is_504_and_leaves_nothing(world, stream):
    hold(world)
    async with serve(world.engine) as running:
        body = {"prompt": [1, 2, 3], "timeout": 0.2, "stream": stream}
        late = await running.client.post(COMPLETIONS, json=body)
        error = late.json()["error"]
        assert (late.status_code, {name: error[name] for name in DEADLINE}) == (504, DEADLINE)
        let_go(world)
        await world.until_nothing_is_held()
        assert running.admission.idle


async def test_a_deadline_inside_a_stream_is_its_last_event_and_leaves_nothing(world):
    async with serve(world.engine) as running:
        body = {"prompt": [1, 2, 3], "timeout": 1.0, "stream": True, "max_tokens": 400, "ignore_eos": True}
        events = []
        async with running.client.stream("POST", COMPLETIONS, json=body) as answer:
            assert answer.status_code == 200
            async for line in answer.aiter_lines():
                if line.startswith("data: "):
                    events.append(json.loads(line.removeprefix("data: ")))
                    hold(world)
        let_go(world)
        error = events[-1]["error"]
        assert {name: error[name] for name in DEADLINE} == DEADLINE
        assert events[0]["choices"]
        await world.until_nothing_is_held()
        assert running.admission.idle


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        (CHAT, HELLO | {"n": 5}, "n"),
        (COMPLETIONS, {"prompt": "hi", "n": 5}, "n"),
        (COMPLETIONS, {"prompt": ["a", "b", "c", "d", "e"]}, "prompt"),
        (COMPLETIONS, {"prompt": ["a", "b", "c"], "n": 2}, "prompt"),
    ],
)
async def test_more_choices_than_can_ever_be_computed_at_once_are_refused_by_name(connect, path, body, param):
    engine = FakeEngine(says("never"))
    async with connect(engine, max_running=4) as client:
        answer = await client.post(path, json=body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
    assert engine.requests == []


async def test_places_and_queue_are_counted_in_choices():
    script = Gated(early=False)
    engine = FakeEngine(script)
    async with serve(engine, max_running=4, max_queued=3) as running:
        client = running.client
        three = asyncio.create_task(client.post(CHAT, json=HELLO | {"n": 3}))
        await wait_for(lambda: running.admission.running == 3)
        waiting = [asyncio.create_task(client.post(CHAT, json=HELLO | {"n": 2}))]
        await wait_for(lambda: running.admission.queued == 2)
        waiting.append(asyncio.create_task(client.post(CHAT, json=HELLO)))
        await wait_for(lambda: running.admission.queued == 3)
        refused = await client.post(CHAT, json=HELLO)
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "too_many_requests")
        assert len(engine.requests) == 3
        script.gate.set()
        answers = await asyncio.gather(three, *waiting)
    assert [len(answer.json()["choices"]) for answer in answers] == [3, 2, 1]


async def test_openai_client_sees_load_and_deadlines_as_its_own_exceptions():
    script = Gated(early=False)
    async with (
        serve(FakeEngine(script), max_running=1, max_queued=0) as running,
        openai.AsyncOpenAI(base_url=f"{running.url}/v1", api_key="none", max_retries=0) as client,
    ):
        messages: Any = HELLO["messages"]
        first = asyncio.create_task(running.client.post(CHAT, json=HELLO))
        await script.started.wait()
        with pytest.raises(openai.RateLimitError) as refused:
            await client.chat.completions.create(model="default", messages=messages)
        assert int(refused.value.response.headers["retry-after"]) >= 1
        script.gate.set()
        await first
        with pytest.raises(openai.BadRequestError) as too_long:
            await client.chat.completions.create(model="default", messages=messages, extra_body={"timeout": 1e6})
        assert too_long.value.param == "timeout"
        script.gate.clear()
        with pytest.raises(openai.APITimeoutError):
            await client.with_options(timeout=0.3).chat.completions.create(model="default", messages=messages)
        await wait_for(lambda: running.admission.idle)


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("after_first", [False, True])
async def test_a_client_that_leaves_stops_every_unit_within_a_task_and_frees_all_it_held(world, n, stream, after_first):
    """Over a real connection; the verifier is held while the client leaves, as if that task took long."""
    body = {"prompt": list(range(1, 25)), "n": n, "stream": stream, "max_tokens": 400, "ignore_eos": True}
    verifier = world.verifiers[0].engine
    async with serve(world.engine) as running:
        if not after_first:
            hold(world)
        asking = asyncio.create_task(_ask(running.client, body))
        await world.until(lambda: bool(verifier.passes))
        if after_first:
            await world.until(lambda: len(verifier.passes) >= 3)
            verifier.entered.clear()
            hold(world)
            await asyncio.to_thread(verifier.entered.wait, 10)
        asking.cancel()
        await wait_for(lambda: running.admission.idle)
        counts = [len(unit.engine.passes) for unit in world.units]
        let_go(world)
        await world.until_nothing_is_held()
        for _ in range(20):
            await asyncio.sleep(0.005)
        done = [len(unit.engine.passes) - count for unit, count in zip(world.units, counts, strict=True)]
        assert all(more <= 1 for more in done), done
        assert (await running.client.post(COMPLETIONS, json={"prompt": [1, 2], "max_tokens": 2})).status_code == 200
    await world.until_nothing_is_held()


async def _ask(client: httpx.AsyncClient, body: dict[str, Any]) -> None:
    async with client.stream("POST", COMPLETIONS, json=body) as answer:
        async for _ in answer.aiter_bytes():
            pass
