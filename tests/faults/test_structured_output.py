"""Structured output from five processes: OpenAI's client, documents cut and stopped, units killed in their middle."""

from __future__ import annotations

import asyncio
import json
import re
import signal
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import jsonschema
import openai
import pydantic
import pytest
import pytest_asyncio

from tests.schemas import grammar_of
from tests.system import Ask, Processes, Setup, System

pytestmark = pytest.mark.asyncio(loop_scope="module")

NUMBERS = {"type": "array", "items": {"type": "integer", "minimum": 10, "maximum": 999}, "minItems": 25, "maxItems": 25}
PROMPT = tuple(range(30, 120))
MESSAGES: Any = [{"role": "user", "content": "a thing, please"}]
MODES = ("plain", "chain", "tree")


class Owner(pydantic.BaseModel):
    name: Annotated[str, pydantic.Field(max_length=4)]


class Thing(pydantic.BaseModel):
    id: Annotated[int, pydantic.Field(ge=0, le=99)]
    kind: Literal["red", "green"]
    owner: Owner | None


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def processes(tiny: Path, cache_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Processes]:
    setup = Setup(tiny, cache_dir, draft=tiny)
    async with Processes(setup, tmp_path_factory.mktemp("logs")) as started:
        yield started


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(processes: Processes) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{processes.url}/v1", api_key="none", max_retries=0) as opened:
        yield opened


def schema_format(schema: object) -> Any:
    return {"type": "json_schema", "json_schema": {"name": "thing", "schema": schema, "strict": True}}


async def chat(client: openai.AsyncOpenAI, mode: str = "tree", **fields: Any) -> Any:
    options = {"mode": mode} | fields.pop("hetspec", {})
    defaults: dict[str, Any] = {"model": "default", "messages": MESSAGES, "seed": 5, "max_tokens": 200}
    return await client.chat.completions.create(**(defaults | fields), extra_body={"hetspec": options})


# --- OpenAI's client


async def test_openai_parse_gives_the_pydantic_object_in_every_mode(client: openai.AsyncOpenAI) -> None:
    parsed = []
    for mode in MODES:
        answer = await client.chat.completions.parse(
            model="default",
            messages=MESSAGES,
            response_format=Thing,
            seed=3,
            max_tokens=200,
            extra_body={"hetspec": {"mode": mode}},
        )
        assert answer.choices[0].finish_reason == "stop"
        parsed.append(answer.choices[0].message.parsed)
    assert isinstance(parsed[0], Thing)
    assert parsed == [parsed[0]] * 3


async def test_openai_stream_of_a_document_is_the_document(client: openai.AsyncOpenAI) -> None:
    schema = Thing.model_json_schema()
    whole = await chat(client, response_format=schema_format(schema))
    stream = await chat(client, response_format=schema_format(schema), stream=True)
    told = "".join([chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices])
    assert told == whole.choices[0].message.content
    jsonschema.validate(json.loads(told), schema)


async def test_json_object_is_an_object(client: openai.AsyncOpenAI) -> None:
    answer = await chat(client, response_format={"type": "json_object"}, max_tokens=400, temperature=1.0)
    text = answer.choices[0].message.content
    assert text.startswith("{")
    if answer.choices[0].finish_reason == "stop":
        assert isinstance(json.loads(text), dict)


async def test_regex_and_lark_hold_on_both_endpoints(client: openai.AsyncOpenAI) -> None:
    source = "(red|green) [0-9]{3,5}!"
    lark = 'start: ("red" | "green") " " NUMBER "!"\nNUMBER: /[0-9]{3,5}/'
    for options in ({"regex": source}, {"grammar": lark}):
        answer = await chat(client, hetspec=options)
        assert re.fullmatch(source, answer.choices[0].message.content)
        completion = await client.completions.create(
            model="default", prompt="say", max_tokens=40, extra_body={"hetspec": options}
        )
        assert re.fullmatch(source, completion.choices[0].text)
        assert completion.choices[0].finish_reason == "stop"


async def test_choices_are_different_documents(client: openai.AsyncOpenAI) -> None:
    answer = await chat(client, response_format=schema_format(NUMBERS), n=3, temperature=1.0)
    documents = [json.loads(choice.message.content) for choice in answer.choices]
    for document in documents:
        jsonschema.validate(document, NUMBERS)
    assert len({tuple(document) for document in documents}) == 3


async def test_bad_grammar_is_a_bad_request_error_that_names_its_field(client: openai.AsyncOpenAI) -> None:
    bad = {
        "response_format.json_schema.schema": {"response_format": schema_format({"type": "thing"})},
        "hetspec.regex": {"hetspec": {"regex": "(?=a)"}},
        "hetspec.grammar": {"hetspec": {"grammar": "start: a0\n" + "".join(f"a{i}: a{i + 1}\n" for i in range(4000))}},
    }
    for param, fields in bad.items():
        with pytest.raises(openai.BadRequestError) as refused:
            await chat(client, **fields)
        assert refused.value.param == param


def late_dead_end() -> str:
    """A grammar that is given up behind its first 60 letters."""
    properties = {f"p{number}": {"type": "integer"} for number in range(600)}
    schema = json.dumps({"type": "object", "properties": properties})
    return f"start: /[xy]{{60}}/ object\nobject: %json {schema}"


async def test_grammar_that_leaves_no_token_ends_the_request_and_no_unit(
    client: openai.AsyncOpenAI, processes: Processes
) -> None:
    before = [(await processes.describe(unit)).identity.instance for unit in ("drafter", "sampler")]
    for mode in MODES:
        with pytest.raises(openai.BadRequestError, match="the grammar is too complex") as refused:
            await chat(client, mode, hetspec={"grammar": late_dead_end()})
        assert refused.value.code == "grammar_dead_end"
        stream = await chat(client, mode, hetspec={"grammar": late_dead_end()}, stream=True)
        with pytest.raises(openai.APIError, match="the grammar is too complex"):
            async for _ in stream:
                pass
    assert [(await processes.describe(unit)).identity.instance for unit in ("drafter", "sampler")] == before
    assert "unit failed a session" not in processes.log("orchestrator")


# --- what ends a document


async def test_length_cuts_a_document(client: openai.AsyncOpenAI) -> None:
    whole = await chat(client, response_format=schema_format(NUMBERS))
    for mode in MODES:
        cut = await chat(client, mode, response_format=schema_format(NUMBERS), max_tokens=20)
        assert cut.choices[0].finish_reason == "length"
        assert cut.usage.completion_tokens == 20
        assert whole.choices[0].message.content.startswith(cut.choices[0].message.content)


async def test_stop_string_cuts_a_document(client: openai.AsyncOpenAI) -> None:
    whole = (await chat(client, response_format=schema_format(NUMBERS))).choices[0].message.content
    for mode in MODES:
        cut = await chat(client, mode, response_format=schema_format(NUMBERS), stop=[", "])
        assert cut.choices[0].finish_reason == "stop"
        assert cut.choices[0].message.content == whole.split(", ")[0]


async def test_complete_document_ends_before_min_tokens(client: openai.AsyncOpenAI) -> None:
    for mode in MODES:
        answer = await chat(client, mode, hetspec={"regex": "yes|no"})
        assert answer.choices[0].message.content in ("yes", "no")
        options = {"hetspec": {"mode": mode, "regex": "yes|no"}, "min_tokens": 30}
        longer = await client.chat.completions.create(
            model="default", messages=MESSAGES, seed=5, max_tokens=200, extra_body=options
        )
        assert longer.choices[0].message.content == answer.choices[0].message.content
        assert longer.choices[0].finish_reason == "stop"


async def test_min_tokens_hold_where_the_grammar_goes_on(client: openai.AsyncOpenAI) -> None:
    body = {"hetspec": {"regex": "[a-z ]*"}, "min_tokens": 20}
    answer = await client.chat.completions.create(
        model="default", messages=MESSAGES, seed=5, max_tokens=30, extra_body=body
    )
    assert answer.usage is not None
    assert answer.usage.completion_tokens >= 20


async def test_bias_and_penalties_move_a_document_within_its_grammar(client: openai.AsyncOpenAI) -> None:
    plain = await chat(client, response_format=schema_format(NUMBERS), temperature=0)
    changed = [
        await chat(
            client,
            mode,
            response_format=schema_format(NUMBERS),
            temperature=0,
            presence_penalty=2.0,
            logit_bias={"20": 9},
        )
        for mode in MODES
    ]
    texts = [answer.choices[0].message.content for answer in changed]
    jsonschema.validate(json.loads(texts[0]), NUMBERS)
    assert texts == [texts[0]] * 3
    assert texts[0] != plain.choices[0].message.content


# --- faults


DOCUMENTS = [
    Ask(PROMPT[seed:], mode, 100, 0.8 * (seed % 2), seed, grammar=grammar_of(NUMBERS))
    for seed, mode in enumerate((*MODES, *MODES))
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def expected(tiny: Path, cache_dir: Path) -> list[list[int]]:
    """Of `DOCUMENTS`, by plain decoding that nobody disturbs."""
    async with System(Setup(tiny, cache_dir)) as system:
        answers = await system.generate_all([replace(ask, mode="plain") for ask in DOCUMENTS])
    return [answer.tokens for answer in answers]


@pytest.mark.parametrize("unit", ["sampler", "drafter", "verifier"])
async def test_a_unit_killed_in_the_middle_of_a_document_changes_nothing(
    unit: str, processes: Processes, expected: list[list[int]]
) -> None:
    struck: list[int] = []

    def strike(tokens: list[int]) -> None:
        if not struck and len(tokens) >= 40:
            struck.append(len(tokens))
            processes.cycle(unit, signal.SIGKILL)

    answers = await asyncio.gather(*(processes.generate(ask, on_tokens=strike) for ask in DOCUMENTS))
    assert struck
    assert [answer.tokens for answer in answers] == expected
    assert all(len(tokens) > 80 for tokens in expected)
    await processes.settle()
