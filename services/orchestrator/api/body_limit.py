"""Bounds what a client may send, and how slowly, before any of it is understood."""

from __future__ import annotations

import asyncio

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_PATIENCE_S = 30.0


class BodyLimit:
    """Answers 413 to a longer body: at once where its length is declared, else when it gets too long; and 408 to one
    of which nothing more comes for `patience_s`, though its end has not come.
    """

    def __init__(self, app: ASGIApp, max_bytes: int, patience_s: float = _PATIENCE_S) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._patience_s = patience_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        declared = Headers(scope=scope).get("content-length", "")
        declared_bytes = int(declared) if declared.isascii() and declared.isdecimal() else 0
        received_bytes = 0
        complete = False

        async def receive_bounded() -> Message:
            nonlocal received_bytes, complete
            if complete:  # from here on it is the client's leaving that is waited for
                return await receive()
            self._check(declared_bytes)
            message = await self._next(receive)
            received_bytes += len(message.get("body", b""))
            self._check(received_bytes)
            complete = not message.get("more_body", False)
            return message

        await self._app(scope, receive_bounded, send)

    async def _next(self, receive: Receive) -> Message:
        try:
            async with asyncio.timeout(self._patience_s):
                return await receive()
        except TimeoutError:
            raise HTTPException(408, f"the rest of the body has not come within {self._patience_s:g} s") from None

    def _check(self, length: int) -> None:
        if length > self._max_bytes:
            raise HTTPException(413, f"the body has more than {self._max_bytes} bytes")
