"""Random JSON schemas whose documents are short."""

from __future__ import annotations

import json
import random
from typing import Any

from hetspec.decoding.constraint import Grammar, GrammarKind

Schema = dict[str, Any]


def random_schema(seed: int) -> Schema:
    """An object of one to three properties, some of them optional, some nested."""
    return _object(random.Random(seed), depth=2)


def grammar_of(schema: Schema) -> Grammar:
    return Grammar(GrammarKind.JSON_SCHEMA, json.dumps(schema))


def _object(rng: random.Random, depth: int) -> Schema:
    names = rng.sample(["a", "id", "ok", "tag", "é"], rng.randint(1, 3))
    return {
        "type": "object",
        "properties": {name: _value(rng, depth - 1) for name in names},
        "required": [name for name in names if rng.random() < 0.8],
        "additionalProperties": False,
    }


def _value(rng: random.Random, depth: int) -> Schema:
    flat = [
        {"type": "integer", "minimum": rng.randint(-50, 0), "maximum": rng.randint(1, 2000)},
        {"type": "string", "maxLength": rng.randint(0, 6)},
        {"type": "string", "pattern": "^[A-C]{1,3}-[0-9]{2}$"},
        {"enum": ["red", "green", 3, None, 'x"y']},
        {"const": {"k": [1, "two"]}},
        {"type": ["boolean", "null"]},
        {"anyOf": [{"type": "boolean"}, {"type": "string", "enum": ["no", "yes"]}]},
    ]
    nested = [
        {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 99}, "minItems": 1, "maxItems": 3},
    ]
    if depth > 0:
        nested.append(_object(rng, depth))
    return rng.choice(flat + nested)
