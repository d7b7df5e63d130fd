"""/tokenize and /detokenize."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hetspec.text.text_spec import TextSpec
from hetspec.text.tokenizer import TextModel
from tests.contract.fake_engine import TEMPLATE, FakeEngine, says
from tests.vocabularies import sentencepiece

PIECES = TextModel(TextSpec(sentencepiece().tokenizer.to_str(), TEMPLATE, bos_id=1, end_ids=(2,), add_bos=True))


def engine_of(text: TextModel | None = None) -> FakeEngine:
    engine = FakeEngine(says("x"))
    if text is not None:
        engine.text = text
        engine.description.vocab_size = 1 + max(text.vocabulary.tokens)
    return engine


async def test_ids_are_those_that_a_completion_of_the_same_prompt_gets(connect: Any) -> None:
    engine = engine_of(PIECES)
    async with connect(engine) as client:
        told = (await client.post("/tokenize", json={"prompt": "Wind 日本 <s>"})).json()
        await client.post("/v1/completions", json={"prompt": "Wind 日本 <s>"})
        whole = (await client.post("/tokenize", json={"prompt": "Wind", "add_special_tokens": False})).json()
    assert tuple(told["tokens"]) == engine.requests[0].prompt_ids
    assert (told["count"], told["max_model_len"], told["token_strs"]) == (len(told["tokens"]), 256, None)
    assert told["tokens"][0] == 1
    assert whole["tokens"] == PIECES.encode("Wind")


async def test_ids_of_messages_are_those_that_a_chat_gets(connect: Any) -> None:
    engine, body = engine_of(PIECES), {"messages": [{"role": "user", "content": "hi"}]}
    async with connect(engine) as client:
        told = (await client.post("/tokenize", json=body | {"return_token_strs": True})).json()
        await client.post("/v1/chat/completions", json=body)
    assert tuple(told["tokens"]) == engine.requests[0].prompt_ids
    assert told["token_strs"] == [PIECES.vocabulary.tokens[token] for token in told["tokens"]]


@pytest.mark.parametrize("prompt", ["", "x", "naïve 😀\n", "<end>"])
async def test_ids_turn_back_into_the_text(connect: Any, prompt: str) -> None:
    async with connect(engine_of()) as client:
        ids = (await client.post("/tokenize", json={"prompt": prompt})).json()["tokens"]
        assert (await client.post("/detokenize", json={"tokens": ids})).json() == {"prompt": prompt}


@pytest.mark.parametrize(
    ("path", "body", "status", "param"),
    [
        ("/tokenize", {}, 400, "prompt"),
        ("/tokenize", {"prompt": "x", "messages": [{"role": "user", "content": "x"}]}, 400, "prompt"),
        ("/tokenize", {"prompt": "\ud800"}, 400, "prompt"),
        ("/tokenize", {"prompt": "x" * 100_000}, 400, "prompt"),
        ("/tokenize", {"prompt": 3}, 400, "prompt"),
        ("/tokenize", {"prompt": "x", "tools": [1]}, 400, "tools"),
        ("/tokenize", {"prompt": "x", "model": "other"}, 404, "model"),
        ("/detokenize", {}, 400, "tokens"),
        ("/detokenize", {"tokens": [1, 257]}, 400, "tokens[1]"),
        ("/detokenize", {"tokens": [1] * 257}, 400, "tokens"),
        ("/detokenize", {"tokens": "x"}, 400, "tokens"),
    ],
)
async def test_a_refusal_names_its_field(
    connect: Any, path: str, body: dict[str, Any], status: int, param: str
) -> None:

    async with connect(engine_of()) as client:
        headers = {"content-type": "application/json"}
        answer = await client.post(path, content=json.dumps(body).encode(), headers=headers)
    assert (answer.status_code, answer.json()["error"]["param"]) == (status, param)
