"""The API's calls as data: method, path, body."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hetspec_client import options as request_options
from hetspec_client.errors import InvalidInput
from hetspec_client.options import Json

Messages = Sequence[Mapping[str, Any]]
Prompt = str | Sequence[str] | Sequence[int] | Sequence[Sequence[int]]


@dataclass(frozen=True, slots=True)
class Call:
    """accepts: statuses beside 2xx that carry an answer and no error."""

    method: str
    path: str
    body: bytes | None = None
    accepts: tuple[int, ...] = ()

    def accepted(self, status: int) -> bool:
        return 200 <= status < 300 or status in self.accepts


def get(path: str) -> Call:
    return Call("GET", path)


def post(path: str, body: Mapping[str, Any]) -> Call:
    """Raises InvalidInput for what JSON or UTF-8 cannot hold."""
    try:
        return Call("POST", path, json.dumps(body, ensure_ascii=False, allow_nan=False).encode())
    except UnicodeEncodeError as error:
        raise InvalidInput(f"the text is not valid Unicode: {error.reason}") from error
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"the request cannot be written as JSON: {error}") from error


MODELS = get("/v1/models")
METRICS = get("/metrics")
UNITS = get("/v1/hetspec/units")
READINESS = Call("GET", "/readyz", accepts=(503,))


def chat(messages: Messages, options: Mapping[str, Any], *, stream: bool = False) -> Call:
    return post("/v1/chat/completions", {"messages": list(map(dict, messages))} | _rest(options, stream))


def completion(prompt: Prompt, options: Mapping[str, Any], *, stream: bool = False) -> Call:
    return post("/v1/completions", {"prompt": prompt} | _rest(options, stream))


def tokenize(text: str | Messages, **options: Any) -> Call:
    """Messages are tokenized as a chat's prompt is, template and all."""
    said = {"prompt": text} if isinstance(text, str) else {"messages": list(map(dict, text))}
    return post("/tokenize", said | options)


def detokenize(tokens: Sequence[int]) -> Call:
    return post("/detokenize", {"tokens": list(tokens)})


def _rest(options: Mapping[str, Any], stream: bool) -> Json:
    streaming = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
    return request_options.body(options) | streaming
