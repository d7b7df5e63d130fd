"""Only who shows a key is let in, and within the limits of that key."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import Request
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from orchestrator.api.account import Account
from orchestrator.api.errors import ApiError, error_response
from orchestrator.api.keys import KeyRing
from orchestrator.api.request_log import tell

OPEN_PATHS = frozenset({"/healthz", "/readyz"})  # for probes, which have no key and learn nothing of users


class Authentication:
    """ASGI middleware. A POST counts as a request of the key, whatever comes of it."""

    def __init__(self, app: ASGIApp, keys: KeyRing, on_refusal: Callable[[ApiError], None]) -> None:
        self._app = app
        self._keys = keys
        self._on_refusal = on_refusal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in OPEN_PATHS:
            await self._app(scope, receive, send)
            return
        try:
            account = self._account(Headers(scope=scope).get("authorization"))
            scope.setdefault("state", {})["account"] = account
            tell(key=account.name)
            if scope["method"] == "POST":
                await self._limited(account, scope, receive, send)
            else:
                await self._app(scope, receive, send)
        except ApiError as error:
            self._on_refusal(error)
            await error_response(error)(scope, receive, send)

    def _account(self, authorization: str | None) -> Account:
        scheme, _, secret = (authorization or "").partition(" ")
        account = self._keys.find(secret.strip()) if scheme.lower() == "bearer" else None
        if account is None:
            problem = "this API key is not known" if authorization else "no API key was given"
            message = f"{problem}: send the header Authorization: Bearer KEY"
            raise ApiError(401, message, code="invalid_api_key", headers={"WWW-Authenticate": "Bearer"})
        return account

    async def _limited(self, account: Account, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_limits(message: Message) -> None:
            if message["type"] == "http.response.start":
                account.answers[message["status"]] += 1
                MutableHeaders(scope=message).update(account.headers())
            await send(message)

        try:
            with account.request():
                await self._app(scope, receive, send_with_limits)
        except ApiError as error:
            account.answers[error.status] += 1
            error.headers = (error.headers or {}) | account.headers()
            raise


def account_of(request: Request) -> Account | None:
    """None where the server asks for no keys."""
    account: Account | None = getattr(request.state, "account", None)
    return account


def client_of(request: Request) -> str:
    """Who shares the queue fairly with others: a key, or without keys an address."""
    if (account := account_of(request)) is not None:
        return account.name
    return request.client.host if request.client else ""
