"""Real requests, bent: bodies that a client might send by mistake or by malice, the same for the same seed."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from typing import Any

Json = dict[str, Any]

REQUESTS: tuple[tuple[str, Json], ...] = (
    ("/v1/chat/completions", {"model": "default", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3}),
    (
        "/v1/chat/completions",
        {
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": [{"type": "text", "text": "Grüße 🙂"}]},
            ],
            "max_completion_tokens": 2,
            "temperature": 0.8,
            "top_p": 0.9,
            "top_k": 20,
            "min_p": 0.05,
            "n": 2,
            "seed": 3,
            "stop": ["x", "\n\n"],
            "logprobs": True,
            "top_logprobs": 2,
            "stream": True,
            "stream_options": {"include_usage": True},
            "frequency_penalty": 0.5,
            "presence_penalty": -0.5,
            "repetition_penalty": 1.1,
            "logit_bias": {"5": -10, "7": 2.5},
            "user": "u",
            "hetspec": {"mode": "tree", "max_nodes": 8, "max_depth": 3, "min_gain": 0.1},
        },
    ),
    (
        "/v1/chat/completions",
        {
            "messages": [{"role": "user", "content": "JSON please"}],
            "max_tokens": 4,
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "n", "schema": {"type": "object", "properties": {"a": {"type": "integer"}}}},
            },
        },
    ),
    ("/v1/completions", {"prompt": "One two", "max_tokens": 3, "temperature": 0, "echo": True, "logprobs": 2}),
    (
        "/v1/completions",
        {"prompt": [[1, 2, 3], [4]], "max_tokens": 2, "n": 2, "seed": 1, "min_tokens": 1, "ignore_eos": True},
    ),
    ("/tokenize", {"prompt": "One two"}),
    ("/detokenize", {"tokens": [1, 2, 3]}),
)

_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 0.5, -0.0, 1e308, 2**31, 2**63, 2**64, -(2**70), 10**400),
    *("", " ", "x", "0", "null", "\x00", "\ud800", "🙂" * 50, "a" * 3000, "default"),
    *([], [[]], [None], [0], [""], [-1], ["x"] * 9, [[1], "x"], {}, {"": None}, {"type": "text"}, {"type": "x"}),
    *([{"role": "user"}], [{"role": "tool", "content": "x"}], {"mode": "warp"}, {"999999999": 1}, {"1": 1e9}),
)
_NAMES = ("tools", "Temperature", "max_token", "__proto__", "", "hetspec.mode", "n ", "suffix", "best_of", "timeout")


def mutated(seed: int, count: int) -> Iterator[tuple[str, bytes]]:
    """Paths and bodies."""
    rng = random.Random(seed)
    for _ in range(count):
        path, body = rng.choice(REQUESTS)
        body = copy.deepcopy(body)
        for _ in range(rng.randint(1, 3)):
            _bend(rng, body)
        yield path, _spoiled(rng, json.dumps(body).encode())


def _bend(rng: random.Random, body: Json) -> None:
    """Changes, drops or adds one value somewhere in it."""
    holder, key = rng.choice(list(_places(body)))
    match rng.randrange(5):
        case 0:
            del holder[key]
        case 1 if isinstance(holder, dict):
            holder[rng.choice(_NAMES)] = copy.deepcopy(rng.choice(_VALUES))
        case 2 if isinstance(holder, list):
            holder.append(copy.deepcopy(rng.choice(_VALUES)))
        case 3:
            holder[key] = [holder[key]] * rng.choice((1, 2, 40))
        case _:
            holder[key] = copy.deepcopy(rng.choice(_VALUES))


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    keys: list[Any] = list(value) if isinstance(value, dict) else list(range(len(value)))
    if not keys:
        yield {"": None}, ""
    for key in keys:
        yield value, key
        if isinstance(value[key], dict | list):
            yield from _places(value[key])


def _spoiled(rng: random.Random, text: bytes) -> bytes:
    """Now and then what arrives is no JSON any more, or hardly."""
    match rng.randrange(20):
        case 0:
            return text[: rng.randrange(len(text))]
        case 1:
            at = rng.randrange(len(text))
            return text[:at] + bytes([rng.randrange(256)]) + text[at + 1 :]
        case 2:
            return b"[" * 5000 + text
        case 3:
            return text.replace(b":", rng.choice((b": NaN,", b': Infinity, "z":', b': 1e9999, "z":')), 1)
        case _:
            return text
