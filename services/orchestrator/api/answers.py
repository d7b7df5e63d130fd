"""Answers and stream chunks of the two endpoints, in OpenAI's shapes."""

from __future__ import annotations

import hashlib
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from hetspec.decoding.rule import RULE_VERSION
from hetspec.text.tokenizer import TextModel
from orchestrator.api.choice_answers import ChatChoice, ChoiceAnswer, CompletionChoice, Json
from orchestrator.api.echo import prompt_offsets
from orchestrator.api.logprobs import ChatLogprobs, CompletionLogprobs
from orchestrator.api.prepare import Prepared
from orchestrator.api.prompts import Prompt
from orchestrator.api.schemas import ChatBody, CompletionBody
from orchestrator.engine.engine import EngineDescription
from orchestrator.engine.request import Emission, FinishReason


@dataclass(frozen=True, slots=True)
class Usage:
    """cached_tokens: of the prompts', read for earlier requests already."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int

    def render(self) -> Json:
        total = self.prompt_tokens + self.completion_tokens
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": total,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
        }


def system_fingerprint(description: EngineDescription) -> str:
    """Changes with whatever can change an output: weights, precision, the units' arithmetic, the decoding rule."""
    parts = (description.fingerprint, description.precision, *sorted(description.digests.items()), RULE_VERSION)
    return "fp_" + hashlib.sha256(repr(parts).encode()).hexdigest()[:12]


@dataclass(frozen=True, slots=True)
class Head:
    """What every chunk of one answer repeats."""

    model: str
    fingerprint: str
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    created: int = field(default_factory=lambda: int(time.time()))

    def render(self, id_prefix: str, object_: str, choices: list[Json]) -> Json:
        return {
            "id": f"{id_prefix}-{self.id}",
            "object": object_,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
            "choices": choices,
        }


@dataclass(frozen=True, slots=True)
class Endpoint:
    """name: in metrics. The others: what an answer, and a chunk of one, is called on the wire."""

    name: str
    id_prefix: str
    whole: str
    chunk: str


CHAT = Endpoint("chat", "chatcmpl", "chat.completion", "chat.completion.chunk")
COMPLETIONS = Endpoint("completions", "cmpl", "text_completion", "text_completion")


@dataclass(frozen=True, slots=True)
class Answer:
    """All choices of a request."""

    endpoint: Endpoint
    head: Head
    choices: Sequence[ChoiceAnswer]

    def whole(self, emissions: Sequence[Emission]) -> Json:
        """emissions: all of each choice, as one."""
        told = [choice.whole(emission) for choice, emission in zip(self.choices, emissions, strict=True)]
        return self.head.render(self.endpoint.id_prefix, self.endpoint.whole, told)

    def opening(self, index: int, first: Emission) -> Iterator[Json]:
        return map(self._chunk, self.choices[index].opening(first))

    def chunk(self, index: int, emission: Emission) -> Json:
        return self._chunk(self.choices[index].chunk(emission))

    def closing(self, index: int, finish_reason: FinishReason) -> Json:
        return self._chunk(self.choices[index].closing(finish_reason))

    def empty(self) -> Json:
        """The chunk without choices that carries usage."""
        return self.head.render(self.endpoint.id_prefix, self.endpoint.chunk, [])

    def _chunk(self, choice: Json) -> Json:
        return self.head.render(self.endpoint.id_prefix, self.endpoint.chunk, [choice])


def chat_answer(head: Head, body: ChatBody, text: TextModel) -> Answer:
    def logprobs() -> ChatLogprobs | None:
        return ChatLogprobs(text.vocabulary) if body.logprobs else None

    return Answer(CHAT, head, [ChatChoice(index, logprobs()) for index in range(body.n or 1)])


def completion_answer(head: Head, body: CompletionBody, prepared: Prepared, text: TextModel) -> Answer:
    """Choices of the first prompt, then of the next."""

    def logprobs(prompt: Prompt) -> CompletionLogprobs | None:
        if body.logprobs is None:
            return None
        if not body.echo:
            return CompletionLogprobs(text.vocabulary)
        return CompletionLogprobs(text.vocabulary, prompt_offsets(prompt, text), begin=len(prompt.text))

    prompts = [prompt for prompt in prepared.prompts for _ in range(body.n or 1)]
    choices = [
        CompletionChoice(index, logprobs(prompt), echo=prompt.text if body.echo else None)
        for index, prompt in enumerate(prompts)
    ]
    return Answer(COMPLETIONS, head, choices)
