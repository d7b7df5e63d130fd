"""Every failure as OpenAI writes it: `{"error": {"message", "type", "param", "code"}}`, with its HTTP status.

`param` is the path of the field in the request: `temperature`, `hetspec.mode`, `messages[0].content`.
"""

from __future__ import annotations

import logging
import math
import reprlib
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from orchestrator.engine.errors import (
    ContextTooLong,
    DeadlineExceeded,
    EngineError,
    NoTokenAllowed,
    RequestFailed,
    UnitsUnavailable,
)

log = logging.getLogger(__name__)

_BRIEF = reprlib.Repr()  # for values of any size and depth
_BRIEF.maxstring = _BRIEF.maxlong = 60

CLIENT_CLOSED = 499  # nobody reads it: what logs and metrics call a client that went away


class ApiError(Exception):
    """A refusal that the client is meant to read."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        type_: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.type, self.param, self.code = status, message, type_, param, code
        self.headers = headers

    def body(self) -> dict[str, Any]:
        error = {"message": self.message, "type": self.type, "param": self.param, "code": self.code}
        return {"error": {key: _printable(value) for key, value in error.items()}}


class ClientDisconnected(Exception):
    """The client went away; nobody is left to answer."""


def invalid(param: str, message: str, code: str | None = None) -> ApiError:
    return ApiError(400, message, param=param, code=code)


def rate_limited(message: str, code: str, wait_s: float) -> ApiError:
    """wait_s: after so long, another attempt is worth it."""
    whole_s = max(1, math.ceil(wait_s))
    message = f"{message}: try again in {whole_s} s"
    return ApiError(429, message, type_="rate_limit_error", code=code, headers={"Retry-After": str(whole_s)})


def as_api_error(error: Exception) -> ApiError:
    """The one map from what can go wrong further in to what the client is told."""
    match error:
        case ApiError():
            return error
        case ContextTooLong():
            return ApiError(400, str(error), code="context_length_exceeded")
        case NoTokenAllowed():
            return ApiError(400, str(error), code="grammar_dead_end")
        case UnitsUnavailable():
            headers = {"Retry-After": "1"}
            return ApiError(503, str(error), type_="server_error", code="units_unavailable", headers=headers)
        case DeadlineExceeded():
            return ApiError(504, str(error), type_="server_error", code="deadline_exceeded")
        case RequestFailed():
            return ApiError(500, str(error), type_="server_error", code="request_failed")
        case _:
            log.exception("request failed", exc_info=error)
            return ApiError(500, "the request failed inside the server", type_="server_error", code="internal_error")


def error_response(error: ApiError) -> JSONResponse:
    return JSONResponse(error.body(), error.status, headers=error.headers)


def install(app: FastAPI, on_refusal: Callable[[ApiError], None]) -> None:
    """Every error answer of `app` takes this shape, and is told to `on_refusal`."""

    def refuse(error: ApiError) -> JSONResponse:
        on_refusal(error)
        return error_response(error)

    async def on_error(_: Request, error: Exception) -> JSONResponse:
        return refuse(as_api_error(error))

    async def on_http(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        return refuse(_http_error(request, error))

    async def on_validation(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        return refuse(_validation_error(request, error.errors()[0]))

    async def on_disconnect(_: Request, __: Exception) -> Response:
        return Response(status_code=CLIENT_CLOSED)

    for kind in (Exception, ApiError, EngineError):
        app.add_exception_handler(kind, on_error)
    app.add_exception_handler(HTTPException, on_http)
    app.add_exception_handler(RequestValidationError, on_validation)
    app.add_exception_handler(ClientDisconnected, on_disconnect)


def _http_error(request: Request, error: HTTPException) -> ApiError:
    where = f"{request.method} {request.url.path[:100]}"
    headers = dict(error.headers or {})
    match error.status_code:
        case 404:
            return ApiError(404, f"there is no {where}", code="not_found")
        case 405:
            return ApiError(405, f"{where} is not allowed", code="method_not_allowed", headers=headers)
        case 408:
            return ApiError(408, str(error.detail), code="body_timeout", headers={"Connection": "close"})
        case 413:
            return ApiError(413, str(error.detail), code="body_too_large")
        case 400:  # what the framework makes of a body that it cannot read
            if isinstance(error.__cause__, ApiError):
                return error.__cause__
            return ApiError(400, "the body is not valid JSON", code="invalid_json")
        case status:
            return ApiError(status, str(error.detail) or HTTPStatus(status).phrase, headers=headers)


def _validation_error(request: Request, error: dict[str, Any]) -> ApiError:
    if error["type"] == "fields_disagree":
        field = error["ctx"]["field"]
        return invalid(field, f"{field}: {error['msg']}")
    if error["type"] == "json_invalid":
        return ApiError(400, f"the body is not valid JSON: {error['ctx']['error']}", code="invalid_json")
    if not _is_json(request.headers.get("content-type", "")):
        return ApiError(415, "content-type must be application/json", code="unsupported_media_type")
    if len(error["loc"]) == 1:
        return ApiError(400, f"the body is no JSON object of known fields: {_reason(error)}", code="invalid_body")
    param = field_path(error["loc"][1:])
    return invalid(param, f"{param}: {_reason(error)}")


def _is_json(content_type: str) -> bool:
    kind = content_type.partition(";")[0].strip().lower()
    return kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))


def field_path(loc: Sequence[str | int]) -> str:
    path = ""
    for step in loc:
        if step == "[key]":  # the key itself is at fault; it is in the path already
            continue
        path += f"[{step}]" if isinstance(step, int) else f".{step}"
    return path.removeprefix(".")


def _reason(error: dict[str, Any]) -> str:
    if error["type"] == "extra_forbidden":
        return "this field is not known"
    if error["type"] == "missing":
        return "this field is required"
    text = str(error["msg"]).removeprefix("Value error, ")
    return text[:1].lower() + text[1:] + f"; got {_shown(error.get('input'))}"


def _shown(value: object) -> str:
    text = _BRIEF.repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _printable(text: str | None) -> str | None:
    """Lone surrogates, which JSON can name and UTF-8 cannot hold, are spelt out."""
    return text if text is None else text.encode("utf-8", "backslashreplace").decode()
