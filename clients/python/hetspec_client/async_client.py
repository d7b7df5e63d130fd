"""The SDK for asyncio: `Client`'s methods, awaited."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Any, Self, Unpack

import httpx

from hetspec_client import calls
from hetspec_client.answers import Answer, Model, Readiness, listed_models, parse, prompt_text, token_ids
from hetspec_client.calls import Call, Messages, Prompt
from hetspec_client.client import DEFAULT_URL, SILENCE_S
from hetspec_client.endpoint import Endpoint, request
from hetspec_client.metrics import Metrics
from hetspec_client.observe.service import Service, parse_services
from hetspec_client.options import ChatOptions, CompletionOptions
from hetspec_client.responses import decode, refusal
from hetspec_client.stream import Chunk, StreamParser


class AsyncClient:
    """As `Client`. A cancelled task ends its request, and the server stops."""

    def __init__(self, url: str = DEFAULT_URL, api_key: str | None = None, timeout_s: float | None = SILENCE_S) -> None:
        self._endpoint = Endpoint(url, api_key, timeout_s)
        self._http = httpx.AsyncClient(**self._endpoint.settings())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    async def chat(self, messages: Messages, **options: Unpack[ChatOptions]) -> Answer:
        return await self.answer(calls.chat(messages, options))

    async def stream_chat(self, messages: Messages, **options: Unpack[ChatOptions]) -> AsyncStream:
        return await self.stream(calls.chat(messages, options, stream=True))

    async def complete(self, prompt: Prompt, **options: Unpack[CompletionOptions]) -> Answer:
        return await self.answer(calls.completion(prompt, options))

    async def stream_complete(self, prompt: Prompt, **options: Unpack[CompletionOptions]) -> AsyncStream:
        return await self.stream(calls.completion(prompt, options, stream=True))

    async def models(self) -> list[Model]:
        return parse(listed_models, await self.call(calls.MODELS))

    async def tokenize(self, text: str | Messages) -> list[int]:
        return parse(token_ids, await self.call(calls.tokenize(text)))

    async def detokenize(self, tokens: Sequence[int]) -> str:
        return parse(prompt_text, await self.call(calls.detokenize(tokens)))

    async def units(self) -> list[Service]:
        return parse(parse_services, await self.call(calls.UNITS))

    async def readiness(self) -> Readiness:
        """Also of a server that is not ready."""
        return parse(Readiness.parse, await self.call(calls.READINESS))

    async def metrics(self) -> Metrics:
        return Metrics.parse(await self.read(calls.METRICS))

    async def answer(self, call: Call) -> Answer:
        return parse(Answer.parse, await self.call(call))

    async def stream(self, call: Call) -> AsyncStream:
        return AsyncStream(await self._send(call, stream=True), self._endpoint)

    async def call(self, call: Call) -> Any:
        """The JSON that it answers: for paths that have no method here."""
        return decode(await self.read(call))

    async def read(self, call: Call) -> bytes:
        """The body that it answers."""
        return (await self._send(call, stream=False)).content

    async def _send(self, call: Call, *, stream: bool) -> httpx.Response:
        with self._endpoint.errors():
            response = await self._http.send(request(self._http, call), stream=stream)
            if call.accepted(response.status_code):
                return response
            raise refusal(response.status_code, response.headers, await response.aread())


class AsyncStream:
    """As `Stream`."""

    def __init__(self, response: httpx.Response, endpoint: Endpoint) -> None:
        self._response = response
        self._parser = StreamParser()
        self._chunks = self._read(endpoint)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._chunks.aclose()
        await self._response.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Chunk:
        return await anext(self._chunks)

    @property
    def answer(self) -> Answer:
        """What was told, in the shape of an answer that was not streamed. Raises BrokenStream before its end."""
        return self._parser.answer

    async def _read(self, endpoint: Endpoint) -> AsyncGenerator[Chunk, None]:
        with endpoint.stream_errors():
            async for piece in self._response.aiter_bytes():
                for chunk in self._parser.push(piece):
                    yield chunk
                if self._parser.done:
                    break
        self._parser.finish()
