"""A JSON schema is held to as a whole: what says more than the compiler honours is refused by name."""

from __future__ import annotations

import re
from copy import deepcopy
from typing import Any

import pytest

from orchestrator.api.json_schema import check_keywords

Schema = dict[str, Any]


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        ({}, "#"),
        ({"properties": {"a": {}}}, "#/properties/a"),
        ({"items": {"anyOf": [{}, {"additionalProperties": {}}]}}, "#/items/anyOf/1/additionalProperties"),
        ({"prefixItems": [{}]}, "#/prefixItems/0"),
        ({"patternProperties": {"^a$": {}}}, "#/patternProperties/^a$"),
        ({"$defs": {"never used": {}}}, "#/$defs/never used"),
        ({"allOf": [{"oneOf": [{}]}]}, "#/allOf/0/oneOf/0"),
    ],
)
@pytest.mark.parametrize(
    "keyword", ["uniqueItems", "not", "if", "x-guidance", "minimun", "$anchor", "dependentRequired"]
)
def test_keyword_that_is_not_honoured_is_named_with_its_place(schema: Schema, place: str, keyword: str) -> None:
    schema = deepcopy(schema)
    innermost(schema)[keyword] = True
    with pytest.raises(ValueError, match=re.escape(f"the keyword {keyword!r} at {place} is not supported")):
        check_keywords(schema)


def innermost(schema: Schema) -> Schema:
    """The empty subschema, behind what is the last of everything."""
    found: Any = schema
    while found:
        found = list(found.values())[-1] if isinstance(found, dict) else found[-1]
    return found


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"not": {"type": "string"}, "uniqueItems": {}}, "required": ["not"]},
        {"enum": [{"not": 1}], "const": {"uniqueItems": 1}, "default": {"if": 1}, "examples": [{"then": 1}]},
        {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "urn:x", "title": "t", "deprecated": True},
        {"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"$ref": "#"}}},
        {"items": [{"type": "string"}], "additionalItems": False},
        {"additionalProperties": False, "items": True},
    ],
)
def test_names_and_values_are_no_keywords(schema: Schema) -> None:
    check_keywords(schema)


@pytest.mark.parametrize(
    "reference", ["#/default", "#/enum/0", "#/$defs/b", "http://example.com/x", "#anchor", "other"]
)
def test_reference_to_what_is_no_schema_here_is_refused(reference: str) -> None:
    schema = {"items": {"$ref": reference}, "default": {"uniqueItems": True}, "enum": [{}], "$defs": {"a": {}}}
    with pytest.raises(ValueError, match="at #/items points at no schema"):
        check_keywords(schema)


def test_keywords_of_a_document_stand_at_its_top_alone() -> None:
    with pytest.raises(ValueError, match=r"'\$schema' at #/items"):
        check_keywords({"items": {"$schema": "http://json-schema.org/draft-07/schema"}})
