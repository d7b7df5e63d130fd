"""One choice in OpenAI's shapes: whole, or piece by piece as a stream tells it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

from orchestrator.api.logprobs import ChatLogprobs, CompletionLogprobs
from orchestrator.engine.request import Emission, EmittedToken, FinishReason

Json = dict[str, Any]


class ChoiceAnswer(ABC):
    """How one choice is told: whole, or as the choices of a stream's chunks."""

    @abstractmethod
    def whole(self, emission: Emission) -> Json:
        """emission: all that the choice emitted."""

    @abstractmethod
    def opening(self, first: Emission) -> Iterable[Json]:
        """Before the first emission is told."""

    @abstractmethod
    def chunk(self, emission: Emission) -> Json: ...

    @abstractmethod
    def closing(self, finish_reason: FinishReason) -> Json: ...


class ChatChoice(ChoiceAnswer):
    def __init__(self, index: int, logprobs: ChatLogprobs | None) -> None:
        self._index = index
        self._logprobs = logprobs

    def whole(self, emission: Emission) -> Json:
        return {
            "index": self._index,
            "message": {"role": "assistant", "content": emission.text, "refusal": None},
            "logprobs": self._render(emission),
            "finish_reason": emission.finish_reason,
        }

    def opening(self, first: Emission) -> Iterable[Json]:
        yield self._choice({"role": "assistant", "content": "", "refusal": None})

    def chunk(self, emission: Emission) -> Json:
        return self._choice({"content": emission.text}, self._render(emission))

    def closing(self, finish_reason: FinishReason) -> Json:
        return self._choice({}, finish_reason=finish_reason)

    def _render(self, emission: Emission) -> Json | None:
        return None if self._logprobs is None else self._logprobs.render(emission.tokens)

    def _choice(self, delta: Json, logprobs: Json | None = None, finish_reason: str | None = None) -> Json:
        return {"index": self._index, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}


class CompletionChoice(ChoiceAnswer):
    def __init__(self, index: int, logprobs: CompletionLogprobs | None, echo: str | None) -> None:
        """echo: what stands in front of the text."""
        self._index = index
        self._logprobs = logprobs
        self._echo = echo

    def whole(self, emission: Emission) -> Json:
        text = (self._echo or "") + emission.text
        return self._choice(text, self._render(emission.tokens, emission.prompt), emission.finish_reason)

    def opening(self, first: Emission) -> Iterable[Json]:
        if self._echo is not None:
            yield self._choice(self._echo, self._render((), first.prompt))

    def chunk(self, emission: Emission) -> Json:
        return self._choice(emission.text, self._render(emission.tokens, ()))

    def closing(self, finish_reason: FinishReason) -> Json:
        return self._choice("", None, finish_reason)

    def _render(self, tokens: Sequence[EmittedToken], prompt: Sequence[EmittedToken]) -> Json | None:
        return None if self._logprobs is None else self._logprobs.render(tokens, prompt)

    def _choice(self, text: str, logprobs: Json | None, finish_reason: str | None = None) -> Json:
        return {"index": self._index, "text": text, "logprobs": logprobs, "finish_reason": finish_reason}
