"""Server-sent events: one JSON object an event, then `[DONE]`. A failure is an event too, and the last one."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import anyio
from sse_starlette import EventSourceResponse, ServerSentEvent
from sse_starlette.sse import SendTimeoutError
from starlette.types import Receive, Scope, Send

from orchestrator.api.errors import as_api_error

log = logging.getLogger(__name__)

_SEPARATOR = "\n"
_STALLED_READER_S = 60.0  # a client that reads nothing for so long is gone
DONE = "[DONE]"


class EventStream(EventSourceResponse):
    """Owns `chunks`: however the response ends, it is closed, and with it what the units hold."""

    def __init__(self, first: dict[str, Any], chunks: AsyncGenerator[dict[str, Any], None]) -> None:
        super().__init__(_events(first, chunks), sep=_SEPARATOR, send_timeout=_STALLED_READER_S)
        self._chunks = chunks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        except SendTimeoutError:
            log.warning("the client has read nothing for %.0f s: stream dropped", _STALLED_READER_S)
        finally:
            with anyio.CancelScope(shield=True):
                await self._chunks.aclose()


async def _events(
    first: dict[str, Any], chunks: AsyncGenerator[dict[str, Any], None]
) -> AsyncIterator[ServerSentEvent]:
    yield event(first)
    try:
        async for chunk in chunks:
            yield event(chunk)
    except Exception as error:
        yield event(as_api_error(error).body())
    else:
        yield ServerSentEvent(DONE, sep=_SEPARATOR)


def event(data: dict[str, Any]) -> ServerSentEvent:
    return ServerSentEvent(json.dumps(data, ensure_ascii=False, separators=(",", ":")), sep=_SEPARATOR)
