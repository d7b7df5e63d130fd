"""The `openai` package, unmodified, over a real socket and real models."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.equivalence.http import http, openai_client
from tests.system import Setup

MESSAGES: Any = [{"role": "user", "content": "The quick brown fox"}]
MODES = ("plain", "chain", "tree", "lever", "ahasd", "full")


def in_mode(mode: str) -> dict[str, Any]:
    return {"hetspec": {"mode": mode, "max_nodes": 12, "max_depth": 4}}


async def streamed_chat(client: openai.AsyncOpenAI, **fields: Any) -> tuple[Any, Any, Any, list[Any]]:
    """Texts and finish reasons by choice, usage, and logprobs of the first choice."""
    texts: dict[int, str] = {}
    reasons: dict[int, str] = {}
    usage, logprobs = None, []
    stream = await client.chat.completions.create(stream=True, stream_options={"include_usage": True}, **fields)
    async for chunk in stream:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            texts[choice.index] = texts.get(choice.index, "") + (choice.delta.content or "")
            if choice.finish_reason:
                reasons[choice.index] = choice.finish_reason
            if choice.index == 0 and choice.logprobs:
                logprobs += choice.logprobs.content
    return texts, reasons, usage, logprobs


async def test_three_choices_of_one_seed_differ_and_repeat_in_every_mode_streamed_and_not(
    tiny: Path, cache_dir: Path
) -> None:
    fields: dict[str, Any] = {"model": "default", "messages": MESSAGES, "n": 3, "seed": 7, "max_tokens": 12}
    fields |= {"logprobs": True, "top_logprobs": 2, "temperature": 0.9}
    async with http(Setup(tiny, cache_dir, draft=tiny)) as running, openai_client(running) as client:
        first = await client.chat.completions.create(**fields, extra_body=in_mode("plain"))
        texts = [choice.message.content for choice in first.choices]
        assert len(set(texts)) == 3
        for mode in MODES:
            again = await client.chat.completions.create(**fields, extra_body=in_mode(mode))
            assert again.choices == first.choices
            assert again.usage.completion_tokens == first.usage.completion_tokens
            told, reasons, usage, logprobs = await streamed_chat(client, **fields, extra_body=in_mode(mode))
            assert [told[index] for index in range(3)] == texts
            assert [reasons[index] for index in range(3)] == [choice.finish_reason for choice in first.choices]
            assert usage.completion_tokens == first.usage.completion_tokens
            assert logprobs == first.choices[0].logprobs.content
        assert first.system_fingerprint == again.system_fingerprint


async def test_completions_stop_count_and_log_as_asked(tiny: Path, cache_dir: Path) -> None:
    fields: dict[str, Any] = {"model": "default", "prompt": ["The quick", "brown fox"], "seed": 3, "max_tokens": 10}
    async with http(Setup(tiny, cache_dir, draft=tiny)) as running, openai_client(running) as client:
        free = await client.completions.create(**fields, logprobs=1, extra_body={"ignore_eos": True})
        assert [choice.index for choice in free.choices] == [0, 1]
        assert free.usage.completion_tokens == 20
        for choice in free.choices:
            assert len(choice.logprobs.token_logprobs) == len(choice.logprobs.tokens) == 10
        stop = free.choices[0].text[2:4]
        stopped = await client.completions.create(**fields, stop=[stop], extra_body={"ignore_eos": True})
        assert stopped.choices[0].text == free.choices[0].text.partition(stop)[0]
        assert stopped.choices[0].finish_reason == "stop"
        parts = await client.completions.create(**fields, stop=[stop], stream=True, extra_body={"ignore_eos": True})
        texts = ["", ""]
        async for chunk in parts:
            for choice in chunk.choices:
                texts[choice.index] += choice.text
        assert texts == [choice.text for choice in stopped.choices]


async def test_the_synchronous_client_and_the_models_work_too(tiny: Path, cache_dir: Path) -> None:
    async with http(Setup(tiny, cache_dir)) as running:

        def ask() -> tuple[str, list[str], str]:
            with openai.OpenAI(base_url=f"{running.url}/v1", api_key="none", max_retries=0) as client:
                (model,) = client.models.list().data
                answer = client.chat.completions.create(model=model.id, messages=MESSAGES, max_tokens=5, seed=1)
                stream = client.chat.completions.create(
                    model=model.id, messages=MESSAGES, max_tokens=5, seed=1, stream=True
                )
                parts = [chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices]
                return answer.choices[0].message.content or "", parts, client.models.retrieve(model.id).id

        whole, parts, name = await asyncio.to_thread(ask)
        assert "".join(parts) == whole
        assert name == tiny.name


async def test_errors_are_the_packages_own_and_name_the_field(tiny: Path, cache_dir: Path) -> None:
    async with http(Setup(tiny, cache_dir)) as running, openai_client(running) as client:
        create = client.chat.completions.create
        broken: dict[str, Any] = {"n": 17, "logit_bias": {"5": 101}, "stop": ["a"] * 5}
        for field, value in broken.items():
            with pytest.raises(openai.BadRequestError) as refused:
                await create(model="default", messages=MESSAGES, **{field: value})
            assert str(refused.value.param).startswith(field)
        with pytest.raises(openai.NotFoundError):
            await create(model="gpt-4", messages=MESSAGES)
        with pytest.raises(openai.BadRequestError) as too_long:
            await client.completions.create(model="default", prompt="fox " * 2000)
        assert too_long.value.code == "context_length_exceeded"
