"""What an answer has to look like, as clients say it: what reaches the engine, and what is refused before it does."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hetspec.decoding.constraint import Grammar, GrammarKind
from tests.contract.fake_engine import FakeEngine, says

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
HELLO = {"messages": [{"role": "user", "content": "hi"}]}
SCHEMA = {"type": "object", "properties": {"zeta": {"type": "string"}, "alpha": {"type": "integer"}}}
NO_OPTION = 'start: a\na[suffix="stop = "]: "temperature = " /x[stop=1]/'
OBJECT = Grammar(GrammarKind.JSON_SCHEMA, '{"type": "object"}')


def json_schema(schema: Any = SCHEMA, **fields: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "thing", "schema": schema} | fields}


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(depth - 1):
        schema = {"items": schema}
    return schema


@pytest.mark.parametrize(
    ("fields", "grammar"),
    [
        ({}, None),
        ({"response_format": None}, None),
        ({"response_format": {"type": "text"}}, None),
        ({"response_format": {"type": "json_object"}}, OBJECT),
        ({"response_format": json_schema()}, Grammar(GrammarKind.JSON_SCHEMA, json.dumps(SCHEMA))),
        ({"response_format": json_schema(strict=True)}, Grammar(GrammarKind.JSON_SCHEMA, json.dumps(SCHEMA))),
        (
            {"response_format": json_schema(strict=False, description="d")},
            Grammar(GrammarKind.JSON_SCHEMA, json.dumps(SCHEMA)),
        ),
        ({"response_format": json_schema(nested(100))}, Grammar(GrammarKind.JSON_SCHEMA, json.dumps(nested(100)))),
        ({"hetspec": {"regex": "[a-z]+"}}, Grammar(GrammarKind.REGEX, "[a-z]+")),
        ({"hetspec": {"grammar": 'start: "x"'}}, Grammar(GrammarKind.LARK, 'start: "x"')),
        ({"hetspec": {"grammar": NO_OPTION}}, Grammar(GrammarKind.LARK, NO_OPTION)),
        (
            {"hetspec": {"grammar": 'start: "x"'}, "response_format": {"type": "text"}},
            Grammar(GrammarKind.LARK, 'start: "x"'),
        ),
    ],
)
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
async def test_grammar_is_tried_and_reaches_every_choice(
    path: str, fields: dict[str, Any], grammar: Grammar | None, connect: Any
) -> None:
    engine = FakeEngine(says("x"))
    prompt = HELLO if path == CHAT else {"prompt": "hi"}
    async with connect(engine) as client:
        answer = await client.post(path, json=prompt | {"n": 2} | fields)
    assert answer.status_code == 200
    assert [request.grammar for request in engine.requests] == [grammar, grammar]
    assert engine.grammars == ([grammar] if grammar else [])


@pytest.mark.parametrize(
    ("fields", "param", "reason"),
    [
        ({"response_format": "json"}, "response_format", "json"),
        ({"response_format": {"type": "xml"}}, "response_format.type", "xml"),
        ({"response_format": {"type": "json_object", "schema": {}}}, "response_format.schema", "not known"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema", "required"),
        (
            {"response_format": json_schema() | {"type": "json_object"}},
            "response_format.json_schema",
            "only be given with",
        ),
        ({"response_format": json_schema(name="a b")}, "response_format.json_schema.name", "a b"),
        ({"response_format": json_schema(schema=[])}, "response_format.json_schema.schema", "dictionary"),
        ({"response_format": json_schema(nested(101))}, "response_format.json_schema.schema", "more than 100 levels"),
        ({"response_format": json_schema(nested(400))}, "response_format.json_schema.schema", "more than 100 levels"),
        (
            {"response_format": json_schema({"enum": ["x" * 65536]})},
            "response_format.json_schema.schema",
            "at most 65536",
        ),
        ({"response_format": json_schema(strict="yes")}, "response_format.json_schema.strict", "yes"),
        ({"response_format": json_schema(mode=1)}, "response_format.json_schema.mode", "not known"),
        (
            {"response_format": json_schema({"items": {"uniqueItems": True}})},
            "response_format.json_schema.schema",
            "the keyword 'uniqueItems' at #/items is not supported",
        ),
        ({"hetspec": {"grammar": "start: a\na[temperature=0.5]: /x+/"}}, "hetspec.grammar", "'temperature' of a rule"),
        ({"hetspec": {"grammar": 'start: a\na[lazy, stop="]"]: /x+/'}}, "hetspec.grammar", "'stop' of a rule"),
        ({"hetspec": {"regex": ""}}, "hetspec.regex", "at least 1"),
        ({"hetspec": {"regex": "\ud800"}}, "hetspec.regex", "unicode"),
        ({"hetspec": {"regex": "a", "grammar": 'start: "a"'}}, "hetspec.grammar", "hetspec.regex"),
        (
            {"hetspec": {"regex": "a"}, "response_format": {"type": "json_object"}},
            "hetspec.regex",
            "may not be given with response_format",
        ),
        ({"hetspec": {"regex": "a"}, "ignore_eos": True}, "ignore_eos", "says where the answer ends"),
    ],
)
async def test_unsound_format_is_refused_by_name(fields: dict[str, Any], param: str, reason: str, connect: Any) -> None:
    engine = FakeEngine(says("x"))
    async with connect(engine) as client:
        answer = await client.post(
            CHAT, content=json.dumps(HELLO | fields), headers={"content-type": "application/json"}
        )
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, param)
    assert reason in error["message"]
    assert not engine.requests


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"response_format": json_schema()}, "response_format.json_schema.schema"),
        ({"hetspec": {"regex": "a"}}, "hetspec.regex"),
        ({"hetspec": {"grammar": 'start: "a"'}}, "hetspec.grammar"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_engines_reason_is_told_with_the_field(
    fields: dict[str, Any], param: str, stream: bool, connect: Any
) -> None:
    engine = FakeEngine(says("x"))
    engine.grammar_refusal = "takes too long to compile"
    async with connect(engine) as client:
        answer = await client.post(CHAT, json=HELLO | {"stream": stream} | fields)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param
    assert answer.json()["error"]["message"] == f"{param}: takes too long to compile"
    assert not engine.requests
