"""What takes a real connection: clients that leave, admission, drain."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Iterable
from typing import Any

import openai
import pytest

from orchestrator.engine.request import Emission, GenerationRequest
from tests.contract.fake_engine import FakeEngine, Step, says
from tests.contract.running import CHAT, HELLO, Gated, Running, serve, wait_for


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("early", [False, True])
async def test_client_that_leaves_ends_the_generation(streamed, early):
    script = Gated(early)
    engine = FakeEngine(script)
    async with serve(engine) as running:
        asking = asyncio.create_task(running.client.post(CHAT, json=HELLO | {"stream": streamed}))
        await script.started.wait()
        assert engine.open == 1
        asking.cancel()
        async with asyncio.timeout(10):
            await engine.released.wait()
        metrics = (await running.client.get("/metrics")).text
    assert engine.open == 0
    assert 'outcome="cancelled"} 1.0' in metrics


async def test_client_that_leaves_in_the_middle_of_a_stream_ends_the_generation():
    engine = FakeEngine(Gated(early=True))
    async with serve(engine) as running:
        async with running.client.stream("POST", CHAT, json=HELLO | {"stream": True}) as answer:
            async for line in answer.aiter_lines():
                if '"content":"a"' in line:
                    break
            assert engine.open == 1
        async with asyncio.timeout(10):
            await engine.released.wait()
    assert engine.open == 0


async def test_client_that_leaves_the_queue_never_reaches_the_engine():
    script = Gated(early=False)
    engine = FakeEngine(script)
    async with serve(engine, max_running=1, max_queued=1) as running:
        first = asyncio.create_task(running.client.post(CHAT, json=HELLO))
        await script.started.wait()
        second = asyncio.create_task(running.client.post(CHAT, json=HELLO))
        admission = running.server._admission
        await wait_for(lambda: admission.queued == 1)
        second.cancel()
        await wait_for(lambda: admission.queued == 0)
        script.gate.set()
        assert (await first).status_code == 200
    assert len(engine.requests) == 1


async def test_more_than_the_queue_holds_is_429_with_retry_after():
    script = Gated(early=False)
    async with serve(FakeEngine(script), max_running=1, max_queued=1) as running:
        admitted = [asyncio.create_task(running.client.post(CHAT, json=HELLO)) for _ in range(2)]
        await wait_for(lambda: running.server._admission.queued == 1)
        refused = await running.client.post(CHAT, json=HELLO)
        script.gate.set()
        assert [answer.status_code for answer in await asyncio.gather(*admitted)] == [200, 200]
    assert (refused.status_code, refused.json()["error"]["type"]) == (429, "rate_limit_error")
    assert int(refused.headers["retry-after"]) >= 1


async def test_drain_finishes_running_streams_and_refuses_new_requests():
    script = Gated(early=True)
    engine = FakeEngine(script)
    async with serve(engine, drain_s=10) as running:
        async with running.client.stream("POST", CHAT, json=HELLO | {"stream": True}) as answer:
            lines = answer.aiter_lines()
            await anext(lines)
            running.server.handle_exit(signal.SIGTERM, None)
            refused = await running.client.post(CHAT, json=HELLO)
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "shutting_down")
            assert (await running.client.get("/readyz")).status_code == 503
            script.gate.set()
            assert [line async for line in lines if line][-1] == "data: [DONE]"
        await wait_for(lambda: running.server.should_exit)
    assert engine.open == 0


async def test_what_outlasts_the_grace_is_told_that_the_server_shuts_down():
    script = Gated(early=True)
    engine = FakeEngine(script)
    asked = HELLO | {"stream": True}
    async with serve(engine, drain_s=0.5, max_running=2) as running:
        async with running.client.stream("POST", CHAT, json=asked) as answer:
            lines = answer.aiter_lines()
            await anext(lines)
            whole, waiting = [asyncio.create_task(running.client.post(CHAT, json=HELLO)) for _ in range(2)]
            await wait_for(lambda: (engine.open, running.server._admission.queued) == (2, 1))
            running.server.handle_exit(signal.SIGTERM, None)
            refused = [response.json()["error"] for response in await asyncio.gather(whole, waiting)]
            told = [line async for line in lines if line]
        last = json.loads(told[-1].removeprefix("data: "))["error"]
    assert [error["code"] for error in (*refused, last)] == ["shutting_down"] * 3
    assert {(await task).status_code for task in (whole, waiting)} == {503}
    assert engine.open == 0


def openai_client(running: Running) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{running.url}/v1", api_key="none", max_retries=0)


async def test_openai_client_works_unchanged():
    async with serve(FakeEngine(says("Hel", "lo"))) as running, openai_client(running) as client:
        messages: Any = HELLO["messages"]
        whole = await client.chat.completions.create(model="default", messages=messages, logprobs=True, seed=3)
        assert whole.choices[0].message.content == "Hello"
        assert len(whole.choices[0].logprobs.content) == 5
        assert whole.hetspec["seed"] == 3

        again: Any = [*messages, whole.choices[0].message.model_dump(), *messages]
        async with await client.chat.completions.create(
            model="fake-model", messages=again, stream=True, stream_options={"include_usage": True}
        ) as stream:
            chunks = [chunk async for chunk in stream]
        assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "Hello"
        assert chunks[-1].usage.completion_tokens == 5

        completion = await client.completions.create(
            model="default", prompt="hi", logprobs=2, extra_body={"hetspec": {"mode": "plain"}}
        )
        assert completion.choices[0].logprobs.text_offset == [0, 1, 2, 3, 4]
        assert [model.id async for model in client.models.list()] == ["fake-model"]


async def test_openai_client_sees_its_own_exceptions():
    def script(_: GenerationRequest) -> Iterable[Step]:
        yield Emission("a", (), None)
        yield KeyError("a bug")

    engine = FakeEngine(script)
    async with serve(engine) as running, openai_client(running) as client:
        messages: Any = HELLO["messages"]
        with pytest.raises(openai.BadRequestError) as refused:
            await client.chat.completions.create(model="default", messages=messages, n=0)
        assert refused.value.param == "n"
        with pytest.raises(openai.NotFoundError):
            await client.chat.completions.create(model="gpt-4", messages=messages)
        with pytest.raises(openai.APIError):
            async for _ in await client.chat.completions.create(model="default", messages=messages, stream=True):
                pass
        engine.units["sampler"] = False
        with pytest.raises(openai.InternalServerError):
            await client.chat.completions.create(model="default", messages=messages)
