"""The SDK: a method for each thing that the server does."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, Self, Unpack

import httpx

from hetspec_client import calls
from hetspec_client.answers import Answer, Model, Readiness, listed_models, parse, prompt_text, token_ids
from hetspec_client.calls import Call, Messages, Prompt
from hetspec_client.endpoint import Endpoint, request
from hetspec_client.metrics import Metrics
from hetspec_client.observe.service import Service, parse_services
from hetspec_client.options import ChatOptions, CompletionOptions
from hetspec_client.responses import decode, refusal
from hetspec_client.stream import Chunk, StreamParser

DEFAULT_URL = "http://127.0.0.1:8000"
SILENCE_S = 600.0  # a server's own limit for a request, by default


class Client:
    """A server. Nothing is ever sent twice.

    timeout_s: how long the server may be silent; None: for ever.
    Every method raises HetspecError; `hetspec_client.errors` lists its kinds.
    """

    def __init__(self, url: str = DEFAULT_URL, api_key: str | None = None, timeout_s: float | None = SILENCE_S) -> None:
        self._endpoint = Endpoint(url, api_key, timeout_s)
        self._http = httpx.Client(**self._endpoint.settings())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def chat(self, messages: Messages, **options: Unpack[ChatOptions]) -> Answer:
        return self.answer(calls.chat(messages, options))

    def stream_chat(self, messages: Messages, **options: Unpack[ChatOptions]) -> Stream:
        return self.stream(calls.chat(messages, options, stream=True))

    def complete(self, prompt: Prompt, **options: Unpack[CompletionOptions]) -> Answer:
        return self.answer(calls.completion(prompt, options))

    def stream_complete(self, prompt: Prompt, **options: Unpack[CompletionOptions]) -> Stream:
        return self.stream(calls.completion(prompt, options, stream=True))

    def models(self) -> list[Model]:
        return parse(listed_models, self.call(calls.MODELS))

    def tokenize(self, text: str | Messages) -> list[int]:
        """The ids that the server would make of a prompt, or of messages in the model's chat template."""
        return parse(token_ids, self.call(calls.tokenize(text)))

    def detokenize(self, tokens: Sequence[int]) -> str:
        return parse(prompt_text, self.call(calls.detokenize(tokens)))

    def units(self) -> list[Service]:
        """What every service and replica is doing."""
        return parse(parse_services, self.call(calls.UNITS))

    def readiness(self) -> Readiness:
        """Also of a server that is not ready."""
        return parse(Readiness.parse, self.call(calls.READINESS))

    def metrics(self) -> Metrics:
        return Metrics.parse(self.read(calls.METRICS))

    def answer(self, call: Call) -> Answer:
        return parse(Answer.parse, self.call(call))

    def stream(self, call: Call) -> Stream:
        return Stream(self._send(call, stream=True), self._endpoint)

    def call(self, call: Call) -> Any:
        """The JSON that it answers: for paths that have no method here."""
        return decode(self.read(call))

    def read(self, call: Call) -> bytes:
        """The body that it answers."""
        return self._send(call, stream=False).content

    def _send(self, call: Call, *, stream: bool) -> httpx.Response:
        with self._endpoint.errors():
            response = self._http.send(request(self._http, call), stream=stream)
            if call.accepted(response.status_code):
                return response
            raise refusal(response.status_code, response.headers, response.read())


class Stream:
    """The chunks of an answer, once, as they come; then the whole of it.

    Closing it, or leaving its `with`, ends the request, and the server stops.
    """

    def __init__(self, response: httpx.Response, endpoint: Endpoint) -> None:
        self._response = response
        self._parser = StreamParser()
        self._chunks = self._read(endpoint)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._chunks.close()
        self._response.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Chunk:
        return next(self._chunks)

    @property
    def answer(self) -> Answer:
        """What was told, in the shape of an answer that was not streamed. Raises BrokenStream before its end."""
        return self._parser.answer

    def _read(self, endpoint: Endpoint) -> Generator[Chunk, None, None]:
        with endpoint.stream_errors():
            for piece in self._response.iter_bytes():
                yield from self._parser.push(piece)
                if self._parser.done:
                    break
        self._parser.finish()
