"""Bounds what a client may send, before any of it is understood."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send


class BodyLimit:
    """Answers 413 to a longer body: at once where its length is declared, else when it gets too long."""

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        declared = Headers(scope=scope).get("content-length", "0")
        length = int(declared) if declared.isascii() and declared.isdecimal() else 0

        async def receive_bounded() -> Message:
            nonlocal length
            self._check(length)
            message = await receive()
            if message["type"] == "http.request" and declared == "0":
                length += len(message.get("body", b""))
                self._check(length)
            return message

        await self._app(scope, receive_bounded, send)

    def _check(self, length: int) -> None:
        if length > self._max_bytes:
            raise HTTPException(413, f"the body has more than {self._max_bytes} bytes")
