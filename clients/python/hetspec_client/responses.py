"""What an HTTP answer means."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from hetspec_client.errors import ApiError, UnexpectedAnswer, error_class
from hetspec_client.options import Json


def decode(content: bytes) -> Any:
    """Raises UnexpectedAnswer for what is no JSON."""
    try:
        return json.loads(content)
    except ValueError as error:
        raise UnexpectedAnswer(f"the answer is not JSON: {_beginning(content)}") from error


def refusal(status: int, headers: Mapping[str, str], content: bytes) -> ApiError:
    """The error that an answer with such a status tells, in OpenAI's shape or in any other."""
    try:
        return api_error(status, json.loads(content)["error"], _seconds(headers.get("retry-after")))
    except (ValueError, KeyError, TypeError, AttributeError):
        return error_class(status)(status, f"HTTP status {status}: {_beginning(content)}")


def api_error(status: int, told: Json, retry_after_s: float | None = None) -> ApiError:
    return error_class(status)(
        status,
        str(told["message"]),
        type_=told.get("type"),
        code=told.get("code"),
        param=told.get("param"),
        retry_after_s=retry_after_s,
    )


def _seconds(header: str | None) -> float | None:
    """None for a date, which the header may hold too."""
    return float(header) if header is not None and header.isdecimal() else None


def _beginning(content: bytes) -> str:
    text = " ".join(content.decode("utf-8", "replace").split())
    return (text if len(text) <= 80 else text[:77] + "...") or "nothing"
