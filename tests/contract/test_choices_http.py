"""Several choices, several prompts, echoes: how they are asked of the engine, counted and told."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Iterable
from typing import Any

import pytest

from hetspec.decoding import rule
from hetspec.decoding.sampling import NoiseKey, Sampling
from hetspec.rpc.messages import TokenLogprobs
from orchestrator.api import answers
from orchestrator.engine.errors import UnitsUnavailable
from orchestrator.engine.request import Emission, EmittedToken, GenerationRequest
from tests.contract.fake_engine import FakeEngine, Step, byte_level_text, says, tokens

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
HELLO = {"messages": [{"role": "user", "content": "hi"}]}
TEXT = byte_level_text()


def named(request: GenerationRequest) -> Iterable[Step]:
    """Says which choice it is, in as many emissions as its number and one."""
    name = f"{request.noise.prompt_index}{request.noise.choice_index}"
    for part in range(request.noise.choice_index):
        yield Emission(str(part), tokens(TEXT, str(part), request.top_logprobs), None)
    yield Emission(name, tokens(TEXT, name, request.top_logprobs), "length" if name == "01" else "stop")


async def test_choices_are_numbered_prompt_by_prompt_and_differ_in_their_noise_alone(connect: Any) -> None:
    engine = FakeEngine(named)
    async with connect(engine) as client:
        body = {"prompt": ["a", "bc"], "n": 3, "seed": 5, "max_tokens": 7}
        answer = (await client.post(COMPLETIONS, json=body)).json()
    assert [choice["index"] for choice in answer["choices"]] == list(range(6))
    assert [choice["text"] for choice in answer["choices"]] == ["00", "001", "0102", "10", "011", "0112"]
    assert [choice["finish_reason"] == "length" for choice in answer["choices"]] == [i == 1 for i in range(6)]
    assert [request.noise for request in engine.requests] == [NoiseKey(5, i, j) for i in range(2) for j in range(3)]
    assert [len(request.prompt_ids) for request in engine.requests] == [1, 1, 1, 2, 2, 2]
    assert len({request.request_id for request in engine.requests}) == 1
    assert {"prompt_tokens": 3, "completion_tokens": 18, "total_tokens": 21}.items() <= answer["usage"].items()
    assert engine.open == 0


async def test_statistics_are_summed_and_told_choice_by_choice(connect: Any) -> None:
    async with connect(FakeEngine(says("x"))) as client:
        one = (await client.post(CHAT, json=HELLO | {"seed": 1})).json()["hetspec"]
        three = (await client.post(CHAT, json=HELLO | {"n": 3, "seed": 1})).json()["hetspec"]
    assert "choices" not in one
    assert [choice["index"] for choice in three["choices"]] == [0, 1, 2]
    for name in ("rounds", "drafted", "verified", "accepted", "emitted"):
        assert three[name] == 3 * one[name] == sum(choice[name] for choice in three["choices"])
    assert three["host_ns"] == {part: 3 * spent for part, spent in one["host_ns"].items()}
    assert three["accept_length"] == one["accept_length"]


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
async def test_streams_of_choices_interleave_and_add_up_to_the_whole(connect: Any, path: str) -> None:
    body = (HELLO if path == CHAT else {"prompt": ["a", "b"], "logprobs": 1}) | {"n": 3, "seed": 1}
    engine = FakeEngine(named)
    async with connect(engine) as client:
        whole = (await client.post(path, json=body)).json()
        options = {"stream": True, "stream_options": {"include_usage": True}}
        *lines, done = [line for line in (await client.post(path, json=body | options)).text.split("\n") if line]
    assert done == "data: [DONE]"
    *chunks, last = [json.loads(line.removeprefix("data: ")) for line in lines]
    told = [chunk["choices"][0] for chunk in chunks]
    for choice in whole["choices"]:
        mine = [each for each in told if each["index"] == choice["index"]]
        assert "".join(each["text"] if path == COMPLETIONS else each["delta"].get("content", "") for each in mine) == (
            choice["text"] if path == COMPLETIONS else choice["message"]["content"]
        )
        assert [each["finish_reason"] for each in mine if each["finish_reason"]] == [choice["finish_reason"]]
        assert mine[-1]["finish_reason"] is not None
        if path == CHAT:
            assert mine[0]["delta"] == {"role": "assistant", "content": "", "refusal": None}
    switches = sum(a["index"] != b["index"] for a, b in itertools.pairwise(told))
    assert switches >= len(whole["choices"])
    assert (last["choices"], last["usage"]) == ([], whole["usage"])
    assert [chunk for chunk in (*chunks, last) if "hetspec" in chunk] == [last]


async def test_statistics_ride_on_the_last_choice_to_end_when_usage_is_not_asked_for(connect: Any) -> None:
    async with connect(FakeEngine(named)) as client:
        text = (await client.post(CHAT, json=HELLO | {"n": 3, "stream": True})).text
    chunks = [json.loads(line[6:]) for line in text.split("\n") if line and line != "data: [DONE]"]
    assert ["hetspec" in chunk for chunk in chunks] == [False] * (len(chunks) - 1) + [True]


@pytest.mark.parametrize("streamed", [False, True])
async def test_one_choice_that_fails_fails_the_request_and_stops_the_others(connect: Any, streamed: bool) -> None:
    never = asyncio.Event()

    def script(request: GenerationRequest) -> Iterable[Step]:
        if request.noise.choice_index == 1:
            yield UnitsUnavailable("gone")
        yield never

    engine = FakeEngine(script)
    async with connect(engine) as client:
        answer = await client.post(CHAT, json=HELLO | {"n": 3, "stream": streamed})
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "units_unavailable")
    assert engine.open == 0


async def test_more_choices_than_the_server_computes_at_once_are_refused_by_name(connect: Any) -> None:
    async with connect(FakeEngine(says("x")), max_running=4) as client:
        many = await client.post(CHAT, json=HELLO | {"n": 5})
        prompts = await client.post(COMPLETIONS, json={"prompt": ["a", "b", "c"], "n": 2})
        fits = await client.post(COMPLETIONS, json={"prompt": ["a", "b"], "n": 2})
    assert [(each.status_code, each.json()["error"]["param"]) for each in (many, prompts)] == [
        (400, "n"),
        (400, "prompt"),
    ]
    assert fits.status_code == 200


async def test_an_echo_stands_in_front_of_the_text_in_a_stream_too(connect: Any) -> None:
    """With the logprobs of the prompt: none of its first token, offsets that go on behind it."""

    def script(request: GenerationRequest) -> Iterable[Step]:
        assert request.scores_prompt
        first, second = request.prompt_ids
        yield Emission("", (), None, (EmittedToken(first, None), EmittedToken(second, TokenLogprobs(-2.0))))
        yield Emission("é!", tokens(TEXT, "é!", top=0), "stop")

    body = {"prompt": "hi", "echo": True, "logprobs": 0}
    async with connect(FakeEngine(script)) as client:
        (choice,) = (await client.post(COMPLETIONS, json=body)).json()["choices"]
        text = (await client.post(COMPLETIONS, json=body | {"stream": True})).text
    assert choice["text"] == "hié!"
    assert choice["logprobs"] == {
        "tokens": ["h", "i", "bytes:\\xc3", "bytes:\\xa9", "!"],
        "token_logprobs": [None, -2.0, -0.5, -0.5, -0.5],
        "top_logprobs": [None, {"i": -2.0}, {"bytes:\\xc3": -0.5}, {"bytes:\\xa9": -0.5}, {"!": -0.5}],
        "text_offset": [0, 1, 2, 2, 3],
    }
    chunks = [json.loads(line[6:])["choices"][0] for line in text.split("\n") if line and line != "data: [DONE]"]
    assert "".join(chunk["text"] for chunk in chunks) == "hié!"
    for name, entries in choice["logprobs"].items():
        assert [entry for chunk in chunks if chunk["logprobs"] for entry in chunk["logprobs"][name]] == entries


async def test_every_sampling_field_reaches_the_engine(connect: Any) -> None:
    engine = FakeEngine(says("x"))
    body = {
        "prompt": "hi",
        "temperature": 0.5,
        "repetition_penalty": 1.5,
        "frequency_penalty": -2,
        "presence_penalty": 2,
        "logit_bias": {"200": -100, "7": 1.5, "9": 0},
        "min_tokens": 3,
        "ignore_eos": True,
    }
    async with connect(engine) as client:
        assert (await client.post(COMPLETIONS, json=body)).status_code == 200
    (request,) = engine.requests
    assert request.sampling == Sampling(0.5, 0, 1.0, 0.0, 1.5, -2.0, 2.0, ((7, 1.5), (200, -100.0)))
    assert (request.min_tokens, request.ignore_eos) == (3, True)


async def test_fingerprint_changes_with_the_decoding_rule(connect: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = set()
    for version in (rule.RULE_VERSION, rule.RULE_VERSION + 1):
        monkeypatch.setattr(answers, "RULE_VERSION", version)
        async with connect(FakeEngine(says("x"))) as client:
            seen.add((await client.post(CHAT, json=HELLO)).json()["system_fingerprint"])
    assert len(seen) == 2
