"""Answers and stream chunks of the two endpoints, in OpenAI's shapes."""

from __future__ import annotations

import hashlib
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hetspec.text.vocabulary import Vocabulary
from orchestrator.api.logprobs import ChatLogprobs, CompletionLogprobs
from orchestrator.engine.engine import EngineDescription
from orchestrator.engine.request import Emission, EmittedToken, Statistics

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Usage:
    prompt_tokens: int
    completion_tokens: int

    def render(self) -> Json:
        total = self.prompt_tokens + self.completion_tokens
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": total,
        }


def system_fingerprint(description: EngineDescription) -> str:
    """Changes with whatever can change an output: weights, precision, the units' arithmetic."""
    parts = (description.fingerprint, description.precision, *sorted(description.digests.items()))
    return "fp_" + hashlib.sha256(repr(parts).encode()).hexdigest()[:12]


def statistics_json(statistics: Statistics, seed: int) -> Json:
    return {
        "mode": str(statistics.mode),
        "rounds": statistics.rounds,
        "drafted": statistics.drafted,
        "verified": statistics.verified,
        "accepted": statistics.accepted,
        "emitted": statistics.emitted,
        "accept_length": statistics.accept_length,
        "host_ns": dict(statistics.host_ns),
        "seed": seed,
    }


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


class Answer(ABC):
    """One choice, told whole or in chunks."""

    def __init__(self, head: Head, logprobs: ChatLogprobs | CompletionLogprobs | None) -> None:
        self._head = head
        self._logprobs = logprobs

    def _render(self, tokens: Sequence[EmittedToken]) -> Json | None:
        return None if self._logprobs is None else self._logprobs.render(tokens)

    @abstractmethod
    def whole(self, text: str, tokens: Sequence[EmittedToken], finish_reason: str) -> Json: ...

    @abstractmethod
    def opening(self) -> Iterable[Json]:
        """Chunks before the first token."""

    @abstractmethod
    def chunk(self, emission: Emission) -> Json: ...

    @abstractmethod
    def closing(self, finish_reason: str) -> Json: ...

    @abstractmethod
    def empty(self) -> Json:
        """The chunk without choices that carries usage."""


class ChatAnswer(Answer):
    def whole(self, text: str, tokens: Sequence[EmittedToken], finish_reason: str) -> Json:
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": text, "refusal": None},
            "logprobs": self._render(tokens),
            "finish_reason": finish_reason,
        }
        return self._head.render("chatcmpl", "chat.completion", [choice])

    def opening(self) -> Iterable[Json]:
        yield self._chunk({"role": "assistant", "content": "", "refusal": None})

    def chunk(self, emission: Emission) -> Json:
        return self._chunk({"content": emission.text}, self._render(emission.tokens))

    def closing(self, finish_reason: str) -> Json:
        return self._chunk({}, finish_reason=finish_reason)

    def empty(self) -> Json:
        return self._head.render("chatcmpl", "chat.completion.chunk", [])

    def _chunk(self, delta: Json, logprobs: Json | None = None, finish_reason: str | None = None) -> Json:
        choice = {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}
        return self._head.render("chatcmpl", "chat.completion.chunk", [choice])


class CompletionAnswer(Answer):
    def whole(self, text: str, tokens: Sequence[EmittedToken], finish_reason: str) -> Json:
        return self._chunk(text, self._render(tokens), finish_reason)

    def opening(self) -> Iterable[Json]:
        return ()

    def chunk(self, emission: Emission) -> Json:
        return self._chunk(emission.text, self._render(emission.tokens), None)

    def closing(self, finish_reason: str) -> Json:
        return self._chunk("", None, finish_reason)

    def empty(self) -> Json:
        return self._head.render("cmpl", "text_completion", [])

    def _chunk(self, text: str, logprobs: Json | None, finish_reason: str | None) -> Json:
        choice = {"index": 0, "text": text, "logprobs": logprobs, "finish_reason": finish_reason}
        return self._head.render("cmpl", "text_completion", [choice])


def chat_answer(head: Head, vocabulary: Vocabulary, logprobs: bool) -> ChatAnswer:
    return ChatAnswer(head, ChatLogprobs(vocabulary) if logprobs else None)


def completion_answer(head: Head, vocabulary: Vocabulary, logprobs: bool) -> CompletionAnswer:
    return CompletionAnswer(head, CompletionLogprobs(vocabulary) if logprobs else None)
