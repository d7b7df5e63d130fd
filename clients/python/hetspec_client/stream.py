"""A streamed answer: its chunks as they come, and the whole that they add up to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

from hetspec_client.answers import Answer, parse
from hetspec_client.errors import BrokenStream, UnexpectedAnswer
from hetspec_client.options import Json
from hetspec_client.responses import api_error, decode
from hetspec_client.sse import EventDecoder

_DONE = b"[DONE]"


@dataclass(frozen=True, slots=True)
class Chunk:
    """What one event adds to one choice."""

    index: int
    text: str
    finish_reason: str | None
    logprobs: Json | None
    raw: Json

    @classmethod
    def parse(cls, told: Json) -> Self:
        text = told["delta"].get("content") if "delta" in told else told["text"]
        return cls(told["index"], text or "", told["finish_reason"], told.get("logprobs"), told)


class StreamParser:
    """Bytes in, chunks out."""

    def __init__(self) -> None:
        self._events = EventDecoder()
        self._head: Json = {}
        self._choices: dict[int, _Growing] = {}
        self.done = False

    def push(self, piece: bytes) -> Iterator[Chunk]:
        """Raises ApiError when the server gave up, UnexpectedAnswer for what is no chunk."""
        for data in self._events.push(piece):
            if data == _DONE:
                self.done = True
                return
            yield from parse(self._chunks, decode(data))

    def _chunks(self, event: Json) -> list[Chunk]:
        if "error" in event:
            raise api_error(200, event["error"])
        self._head |= {name: value for name, value in event.items() if name != "choices" and value is not None}
        chunks = [Chunk.parse(choice) for choice in event["choices"]]
        for chunk in chunks:
            self._choices.setdefault(chunk.index, _Growing(chunk.index)).add(chunk)
        return chunks

    def finish(self) -> None:
        """No more bytes will come."""
        if not self.done:
            raise BrokenStream("the stream broke off: it ended before its end was told")

    @property
    def answer(self) -> Answer:
        """The whole answer, in the shape of one that was not streamed. Raises BrokenStream before the end."""
        self.finish()
        choices = [self._choices[index].whole() for index in sorted(self._choices)]
        told = self._head | {"object": self._head["object"].removesuffix(".chunk"), "choices": choices}
        return parse(Answer.parse, told)


class _Growing:
    """One choice, put together from its chunks."""

    def __init__(self, index: int) -> None:
        self._index = index
        self._text: list[str] = []
        self._message: Json | None = None
        self._logprobs: Json | None = None
        self._finish_reason: str | None = None

    def add(self, chunk: Chunk) -> None:
        self._text.append(chunk.text)
        if "delta" in chunk.raw:
            self._message = (self._message or {}) | chunk.raw["delta"]
        if chunk.logprobs is not None:
            self._logprobs = _joined(self._logprobs or {}, chunk.logprobs)
        self._finish_reason = chunk.finish_reason or self._finish_reason

    def whole(self) -> Json:
        if self._finish_reason is None:
            raise UnexpectedAnswer(f"choice {self._index} has no finish_reason")
        text = "".join(self._text)
        said: Json = {"text": text} if self._message is None else {"message": self._message | {"content": text}}
        ended = {"logprobs": self._logprobs, "finish_reason": self._finish_reason}
        return {"index": self._index, **said, **ended}


def _joined(told: Json, more: Json) -> Json:
    """Lists are continued; anything else is told anew."""
    return {name: _continued(told.get(name), value) for name, value in more.items()}


def _continued(told: Any, more: Any) -> Any:
    return [*told, *more] if isinstance(told, list) and isinstance(more, list) else more
