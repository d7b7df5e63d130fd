"""One request, as a command to copy, and what it answers."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

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


def command(address: str) -> str:
    return f"curl http://{address}{PATH} -H 'content-type: application/json' -d '{json.dumps(BODY)}'"


def ask(address: str) -> dict[str, Any]:
    """The answer to `command`. Raises OSError."""
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(f"http://{address}{PATH}", json.dumps(BODY).encode(), headers)
    with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
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
