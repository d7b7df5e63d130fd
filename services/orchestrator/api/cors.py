"""Which web pages may use the server from a browser. Off by default."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp

from orchestrator.api.errors import ApiError, error_response

_EXPOSED = [
    "retry-after",
    "x-request-id",
    *(f"x-ratelimit-{what}-{unit}" for what in ("limit", "remaining", "reset") for unit in ("requests", "tokens")),
]


class Cors(CORSMiddleware):
    """Around the whole application, so that errors too can be read by the page that meets them. No cookies are used."""

    def __init__(self, app: ASGIApp, origins: Sequence[str]) -> None:
        super().__init__(
            app, allow_origins=origins, allow_methods=["GET", "POST"], allow_headers=["*"], expose_headers=_EXPOSED
        )

    def preflight_response(self, request_headers: Headers) -> Response:
        response = super().preflight_response(request_headers)
        if response.status_code < 400:
            return response
        refusal = error_response(ApiError(400, bytes(response.body).decode(), code="cors_refused"))
        refusal.headers.update({name: value for name, value in response.headers.items() if "content" not in name})
        return refusal
