"""One request, as a command to copy, and what it answers."""

from __future__ import annotations

import json
from typing import Any

from deploy.local.access import Access

PATH = "/v1/chat/completions"
BODY = {
    "messages": [
        {
            "role": "user",
            "content": "Repeat three times: the drafter proposes, the verifier checks, the sampler decides.",
        }
    ],
    "max_tokens": 64,
    "temperature": 0,
    "hetspec": {"mode": "tree"},
}
_TIMEOUT_S = 120.0


def command(access: Access) -> str:
    options = f"{access.curl_options} -H 'content-type: application/json'"
    return f"curl {access.url}{PATH}{options} -d '{json.dumps(BODY)}'"


def ask(access: Access) -> dict[str, Any]:
    """The answer to `command`. Raises OSError."""
    with access.open(PATH, _TIMEOUT_S, json.dumps(BODY).encode()) as answer:
        told: dict[str, Any] = json.load(answer)
    return told


def describe(answer: dict[str, Any]) -> str:
    text = answer["choices"][0]["message"]["content"]
    statistics = ", ".join(f"{name} {_short(value)}" for name, value in answer["hetspec"].items())
    return f"{text}\n\n{statistics}"


def _short(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name} {_short(part)}" for name, part in value.items()) + "}"
    return f"{value:.2f}" if isinstance(value, float) else str(value)
