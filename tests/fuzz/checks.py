"""What every answer must be, whatever was asked."""

from __future__ import annotations

import json
from typing import Any

import httpx

ALLOWED = (200, 400, 404, 413, 429)


def check(body: bytes, response: httpx.Response) -> None:
    """A success, or a refusal in OpenAI's shape; one of a field names the field."""
    told = f"{body[:300]!r} -> {response.status_code} {response.text[:300]}"
    assert response.status_code in ALLOWED, told
    if response.status_code == 200:
        return
    error = response.json()["error"]
    assert error.keys() == {"message", "type", "param", "code"}, told
    assert error["message"], told
    assert "\n" not in error["message"], told
    if response.status_code == 400 and is_object(body):
        assert error["param"] is not None, told
    if "[DONE]" in response.text:
        raise AssertionError(told)


def is_object(body: bytes) -> bool:
    """Whether it is a JSON object by the letter of RFC 8259, each key once."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) < len(pairs):
            raise ValueError("a key twice")
        return dict(pairs)

    def refuse(constant: str) -> float:
        raise ValueError(constant)

    try:
        return isinstance(json.loads(body.decode(), object_pairs_hook=once, parse_constant=refuse), dict)
    except (ValueError, RecursionError):
        return False
