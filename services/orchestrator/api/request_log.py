"""One line of log and, where traces are on, one span for each request, around all that is done for it.

A request has an id: the client's own `x-request-id` where that is sane, else one of ours. The answer's header tells it,
every event in the log names it, and it is part of the session names that units see.
"""

from __future__ import annotations

import logging
import re
import time
import uuid
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hetspec.rpc.logs import log_event, log_fields
from hetspec.telemetry.tracing import Traces, annotate, request_span

HEADER = "x-request-id"
_SANE = re.compile(r"[A-Za-z0-9._-]{1,64}")
_WORK = "/v1/"  # other paths are probes and scrapes: they are logged at the level DEBUG


@dataclass(frozen=True, slots=True)
class _Record:
    id: str
    fields: dict[str, object] = field(default_factory=dict)


_current: ContextVar[_Record | None] = ContextVar("hetspec_request", default=None)


def request_id() -> str:
    """Of the request that this runs for; a new one where there is none."""
    current = _current.get()
    return current.id if current is not None else uuid.uuid4().hex


def tell(**fields: object) -> None:
    """Adds to the request's line of log."""
    if (current := _current.get()) is not None:
        current.fields.update(fields)


class RequestLog:
    """The outermost layer of the server."""

    def __init__(self, app: ASGIApp, traces: Traces | None = None) -> None:
        self._app = app
        self._traces = traces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        given = headers.get(HEADER, "")
        record = _Record(given if _SANE.fullmatch(given) else uuid.uuid4().hex)
        begun, status = time.perf_counter(), 0

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)[HEADER] = record.id
                annotate(**{"http.response.status_code": status})
            await send(message)

        token = _current.set(record)
        try:
            with log_fields(request=record.id), self._span(scope, headers, record.id):
                try:
                    await self._app(scope, receive, send_with_id)
                finally:
                    _log(scope, status, time.perf_counter() - begun, record.fields)
        finally:
            _current.reset(token)

    def _span(self, scope: Scope, headers: Headers, id_: str) -> AbstractContextManager[None]:
        """Of a POST: the others are over in a moment."""
        if self._traces is None or scope["method"] != "POST":
            return nullcontext()
        attributes = {"http.request.method": scope["method"], "url.path": scope["path"], "hetspec.request_id": id_}
        name = f"{scope['method']} {scope['path']}"
        return request_span(self._traces.request(name, headers.get("traceparent", ""), attributes))


def _log(scope: Scope, status: int, duration_s: float, fields: dict[str, object]) -> None:
    log_event(
        "request",
        level=logging.INFO if scope["path"].startswith(_WORK) else logging.DEBUG,
        method=scope["method"],
        path=scope["path"],
        status=status,  # 0: the client went away before an answer began
        duration_s=round(duration_s, 6),
        **fields,
    )
