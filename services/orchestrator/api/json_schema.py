"""Which JSON Schema keywords are honoured. A schema with any other is refused: it would say more than is held to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

_ONE_SCHEMA = frozenset({"additionalProperties", "additionalItems", "items"})
_LISTED_SCHEMAS = frozenset(
    {"allOf", "anyOf", "oneOf", "prefixItems", "items"}
)  # items: as drafts before 2020-12 have it
_NAMED_SCHEMAS = frozenset({"$defs", "definitions", "patternProperties", "properties"})
_ASSERTIONS = frozenset(
    {
        "$ref",
        "const",
        "enum",
        "exclusiveMaximum",
        "exclusiveMinimum",
        "format",
        "maxItems",
        "maxLength",
        "maxProperties",
    }
    | {"maximum", "minItems", "minLength", "minProperties", "minimum", "multipleOf", "pattern", "required", "type"}
)
_ANNOTATIONS = frozenset(
    {"$comment", "contentEncoding", "contentMediaType", "default", "deprecated", "description", "discriminator"}
    | {"examples", "readOnly", "title", "writeOnly"}
)
_OF_DOCUMENT = frozenset({"$id", "$schema"})
_KNOWN = _ONE_SCHEMA | _LISTED_SCHEMAS | _NAMED_SCHEMAS | _ASSERTIONS | _ANNOTATIONS

_MAX_DEPTH = 100  # the compiler's reader gives up at 128

Place = tuple[str, dict[str, Any]]  # JSON pointer of a subschema, and what stands there


def check_depth(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema. Raises ValueError where it is too deep to be gone through by functions that call themselves."""
    level: list[Any] = [schema]
    for _ in range(_MAX_DEPTH):
        parts = [part.values() if isinstance(part, dict) else part for part in level if isinstance(part, dict | list)]
        level = [inner for part in parts for inner in part]
        if not level:
            return schema
    raise ValueError(f"nested more than {_MAX_DEPTH} levels deep")


def check_keywords(schema: dict[str, Any]) -> None:
    """Raises ValueError that names the place and the keyword, or a reference to what is no schema."""
    places = dict(_places("", schema))
    for place, found in places.items():
        for keyword in found.keys() - _KNOWN - (_OF_DOCUMENT if place == "" else frozenset()):
            raise ValueError(f"the keyword {keyword!r} at #{place} is not supported")
        reference = found.get("$ref")
        if isinstance(reference, str) and not (reference[:1] == "#" and unquote(reference[1:]) in places):
            raise ValueError(f"$ref {reference!r} at #{place} points at no schema within this one")


def _places(place: str, schema: Any) -> Iterator[Place]:
    """Every subschema that is an object. `true` and `false` are plain; what is no schema the compiler refuses."""
    if not isinstance(schema, dict):
        return
    yield place, schema
    for keyword, value in schema.items():
        here = f"{place}/{keyword}"
        if keyword in _NAMED_SCHEMAS and isinstance(value, dict):
            for name, inner in value.items():
                yield from _places(f"{here}/{name.replace('~', '~0').replace('/', '~1')}", inner)
        elif keyword in _LISTED_SCHEMAS and isinstance(value, list):
            for index, inner in enumerate(value):
                yield from _places(f"{here}/{index}", inner)
        elif keyword in _ONE_SCHEMA:
            yield from _places(here, value)
