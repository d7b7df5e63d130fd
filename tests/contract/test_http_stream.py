"""Streams: what they carry, how they end, and that both ways of asking tell the same."""

from __future__ import annotations

import json
from typing import Any

import pytest

from orchestrator.engine.errors import UnitsUnavailable
from orchestrator.engine.request import Emission
from tests.contract.fake_engine import FakeEngine, byte_level_text, says, tokens

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
HELLO = {"messages": [{"role": "user", "content": "hi"}]}
BODIES = {CHAT: HELLO, COMPLETIONS: {"prompt": "hi"}}


async def stream(client: Any, path: str, **fields: Any) -> list[Any]:
    """The data of every event, parsed where it is JSON."""
    answer = await client.post(path, json=BODIES[path] | {"stream": True} | fields)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/event-stream")
    lines = [line for line in answer.text.split("\n") if line]
    assert all(line.startswith("data: ") for line in lines)
    return [json.loads(line[6:]) if line[6:] != "[DONE]" else "[DONE]" for line in lines]


def delta_text(chunk: dict[str, Any]) -> str:
    (choice,) = chunk["choices"]
    return choice["text"] if "text" in choice else choice["delta"].get("content", "")


async def test_chat_stream_has_openais_shape(connect):
    async with connect(FakeEngine(says("Hel", "lo"))) as client:
        *chunks, done = await stream(client, CHAT)
    assert done == "[DONE]"
    assert {(c["object"], c["id"], c["created"], c["model"]) for c in chunks} == {
        ("chat.completion.chunk", chunks[0]["id"], chunks[0]["created"], "fake-model")
    }
    deltas = [c["choices"][0]["delta"] for c in chunks]
    assert deltas == [{"role": "assistant", "content": "", "refusal": None}, {"content": "Hel"}, {"content": "lo"}, {}]
    assert [c["choices"][0]["finish_reason"] for c in chunks] == [None, None, None, "stop"]
    assert ["hetspec" in c for c in chunks] == [False, False, False, True]


async def test_completion_stream_has_openais_shape(connect):
    async with connect(FakeEngine(says("a", "b", finish="length"))) as client:
        *chunks, done = await stream(client, COMPLETIONS, seed=5)
    assert done == "[DONE]"
    assert [c["choices"][0] for c in chunks] == [
        {"index": 0, "text": "a", "logprobs": None, "finish_reason": None},
        {"index": 0, "text": "b", "logprobs": None, "finish_reason": None},
        {"index": 0, "text": "", "logprobs": None, "finish_reason": "length"},
    ]
    assert chunks[-1]["hetspec"]["seed"] == 5


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
async def test_usage_comes_last_when_asked_for(connect, path):
    async with connect(FakeEngine(says("a", "bc"))) as client:
        *chunks, last, done = await stream(client, path, stream_options={"include_usage": True})
    assert done == "[DONE]"
    assert all(chunk["usage"] is None for chunk in chunks)
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 3
    assert [chunk for chunk in (*chunks, last) if "hetspec" in chunk] == [last]


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
async def test_stream_adds_up_to_the_whole_answer(connect, path):
    pieces = ("né", "\r\n\n", "data: x\u2028", "", "🙂")
    fields: dict[str, Any] = {"logprobs": True, "top_logprobs": 2} if path == CHAT else {"logprobs": 2}
    async with connect(FakeEngine(says(*pieces))) as client:
        whole = (await client.post(path, json=BODIES[path] | fields)).json()["choices"][0]
        *chunks, _ = await stream(client, path, **fields)
    assert "".join(map(delta_text, chunks)) == "".join(pieces)
    told = [chunk["choices"][0]["logprobs"] for chunk in chunks]
    for name, entries in whole["logprobs"].items():
        if entries is not None:
            assert [entry for part in told if part for entry in part[name]] == entries


async def test_tokens_without_text_still_carry_their_logprobs(connect):
    text = byte_level_text()
    first, second = tokens(text, "é", top=0)
    script = [Emission("", (first,), None), Emission("é", (second,), "stop")]
    async with connect(FakeEngine(lambda _: script)) as client:
        *chunks, _ = await stream(client, CHAT, logprobs=True)
    told = [c["choices"][0]["logprobs"] for c in chunks]
    assert [len(part["content"]) for part in told if part] == [1, 1]


@pytest.mark.parametrize(
    ("failure", "code"),
    [(UnitsUnavailable("the verifier is gone"), "units_unavailable"), (KeyError("a bug"), "internal_error")],
)
async def test_failure_after_the_first_token_is_the_last_event(connect, failure, code):
    engine = FakeEngine(lambda _: [Emission("a", (), None), failure])
    async with connect(engine) as client:
        *_, last = await stream(client, CHAT)
    assert set(last) == {"error"}
    assert (last["error"]["code"], last["error"]["type"]) == (code, "server_error")
    assert "a bug" not in last["error"]["message"]
    assert engine.open == 0


async def test_generation_without_an_end_is_a_failure_and_no_answer(connect):
    engine = FakeEngine(lambda _: [Emission("a", (), None)])
    async with connect(engine) as client:
        *_, last = await stream(client, CHAT)
        assert (await client.post(CHAT, json=HELLO)).status_code == 500
    assert last["error"]["code"] == "request_failed"


@pytest.mark.parametrize("streamed", [False, True])
async def test_ended_request_holds_nothing(connect, streamed):
    engine = FakeEngine(says("a", "b"))
    async with connect(engine, max_running=1, max_queued=0) as client:
        for _ in range(3):
            assert (await client.post(CHAT, json=HELLO | {"stream": streamed})).status_code == 200
    assert engine.open == 0
