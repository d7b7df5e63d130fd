"""All five services over real checkpoints, and the orchestrator's HTTP at a port, in the test's event loop."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import openai

from orchestrator.engine.engine import Engine
from tests.contract.running import Running, serve
from tests.system import Setup, System, engine_settings, until


@asynccontextmanager
async def http(setup: Setup) -> AsyncIterator[Running]:
    async with System(setup) as system:
        engine = Engine(system.addresses, engine_settings(setup.chunk_tokens))
        async with serve(engine) as running:
            await until(lambda: all(engine.ready().values()) and all(engine.replicas().values()))
            yield running


def openai_client(running: Running) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{running.url}/v1", api_key="none", max_retries=0)


@dataclass
class Told:
    """One choice of a completion. texts: as it stood after every chunk."""

    text: str = ""
    finish_reason: str | None = None
    logprobs: dict[str, list[Any]] = field(default_factory=dict)
    texts: list[str] = field(default_factory=list)

    def add(self, choice: dict[str, Any]) -> None:
        self.text += choice["text"]
        self.texts.append(self.text)
        self.finish_reason = choice["finish_reason"] or self.finish_reason
        for name, entries in (choice["logprobs"] or {}).items():
            self.logprobs.setdefault(name, []).extend(entries)


@dataclass
class Completion:
    choices: list[Told]
    usage: dict[str, Any]


async def complete(running: Running, streamed: bool = False, **fields: Any) -> Completion:
    """Of /v1/completions, put together from the chunks of a stream where `streamed`."""
    if streamed:
        fields |= {"stream": True, "stream_options": {"include_usage": True}}
    answer = await running.client.post("/v1/completions", json=fields)
    assert answer.status_code == 200, answer.text
    bodies = _events(answer.text) if streamed else [answer.json()]
    choices: dict[int, Told] = {}
    for body in bodies:
        for choice in body["choices"]:
            choices.setdefault(choice["index"], Told()).add(choice)
    return Completion([choices[index] for index in sorted(choices)], bodies[-1]["usage"])


def _events(stream: str) -> list[dict[str, Any]]:
    *events, done = [line.removeprefix("data: ") for line in stream.split("\n") if line]
    assert done == "[DONE]"
    return [json.loads(event) for event in events]
