"""Every known field takes effect, or is refused by name: none is accepted and ignored."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from orchestrator.api.schemas import ChatBody, CompletionBody, HetspecOptions
from tests.contract.fake_engine import FakeEngine, says

DOCUMENT = Path(__file__).parents[2] / "docs" / "api.md"
CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
BODIES: dict[str, dict[str, Any]] = {
    CHAT: {"messages": [{"role": "user", "content": "hi"}]},
    COMPLETIONS: {"prompt": "hi"},
}

LABELS = {"user", "safety_identifier", "prompt_cache_key"}  # of the request, for the client's own use
SUPPORTED: dict[str, Any] = {
    "best_of": {"best_of": 2, "n": 2},
    "echo": True,
    "frequency_penalty": 0.5,
    "hetspec": {"mode": "plain"},
    "ignore_eos": True,
    "logit_bias": {"5": -100},
    "logprobs": {CHAT: True, COMPLETIONS: 1},
    "max_completion_tokens": 3,
    "max_tokens": 3,
    "messages": [{"role": "user", "content": "other"}],
    "min_p": 0.1,
    "min_tokens": 2,
    "model": "unknown",
    "n": 2,
    "presence_penalty": -0.5,
    "prompt": "other",
    "repetition_penalty": 1.2,
    "response_format": {"type": "json_object"},
    "seed": 5,
    "stop": "a",
    "stream": True,
    "stream_options": {"stream": True, "stream_options": {"include_usage": True}},
    "temperature": 0.5,
    "timeout": 3,
    "top_k": 3,
    "top_logprobs": {"logprobs": True, "top_logprobs": 2},
    "top_p": 0.5,
}
TOGETHER = {"best_of", "stream_options", "top_logprobs"}  # given with the field they go with
FIELDS = [(CHAT, field) for field in ChatBody.model_fields] + [
    (COMPLETIONS, field) for field in CompletionBody.model_fields
]


def with_field(path: str, field: str) -> dict[str, Any]:
    value = SUPPORTED[field]
    if field in TOGETHER:
        return value
    return {field: value[path] if field == "logprobs" else value}


async def seen(connect: Any, path: str, body: dict[str, Any]) -> tuple[Any, ...]:
    """What reaches the engine, and the shape of what comes back."""
    engine = FakeEngine(says("ab", finish="length"))
    async with connect(engine) as client:
        answer = await client.post(path, json=BODIES[path] | {"seed": 1} | body)
    requests = [dataclasses.replace(request, request_id="", deadline=None) for request in engine.requests]
    deadlines = [round(request.deadline or 0) for request in engine.requests]
    shape = answer.text if answer.status_code != 200 else sorted(answer.text.split('"'))
    return answer.status_code, requests, deadlines, [part for part in shape if not part.isalnum() or len(part) < 12]


@pytest.mark.parametrize(("path", "field"), FIELDS)
async def test_a_known_field_takes_effect_or_is_refused_by_name(connect: Any, path: str, field: str) -> None:
    if field in LABELS:
        assert (await seen(connect, path, {field: "x"}))[0] == 200
    elif field in SUPPORTED:
        assert await seen(connect, path, with_field(path, field)) != await seen(connect, path, {})
    else:
        async with connect(FakeEngine(says("never"))) as client:
            answer = await client.post(path, json=BODIES[path] | {field: {"asked": 1}})
        error = answer.json()["error"]
        assert (answer.status_code, error["param"]) == (400, field)
        assert error["message"].startswith(field)


@pytest.mark.parametrize("field", sorted({*ChatBody.model_fields, *CompletionBody.model_fields}))
def test_the_documents_name_every_field(field: str) -> None:
    assert f"`{field}" in DOCUMENT.read_text() or field == "hetspec"


@pytest.mark.parametrize("field", HetspecOptions.model_fields)
def test_the_documents_name_every_extension(field: str) -> None:
    assert f"`hetspec.{field}`" in DOCUMENT.read_text()


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("field", ["tool_resources", "best_off", "stop_token_ids", "guided_json", "length_penalty"])
async def test_an_unknown_field_is_refused_by_name(connect: Any, path: str, field: str) -> None:
    async with connect(FakeEngine(says("never"))) as client:
        answer = await client.post(path, json=BODIES[path] | {field: 1})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, field)
