"""Strangers' grammars: what is wrong with one is found out where it can hurt nobody."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from hetspec.decoding.constraint import Grammar, GrammarKind
from hetspec.decoding.grammar import MAX_SOURCE_BYTES, GrammarError
from hetspec.text.text_spec import TextSpec
from orchestrator.engine.grammar_check import GrammarCheck
from tests import toy
from tests.vocabularies import byte_level

VOCABULARY = byte_level("smollm")
TEXT = TextSpec(VOCABULARY.tokenizer.to_str(), end_ids=(2,))
GOOD = Grammar(GrammarKind.REGEX, "[a-z]{1,9}")


def schema(source: object) -> Grammar:
    return Grammar(GrammarKind.JSON_SCHEMA, json.dumps(source))


def lark(source: str) -> Grammar:
    return Grammar(GrammarKind.LARK, source)


def references(count: int) -> Grammar:
    """A schema of arrays, each a reference to the next."""
    arrays = {f"d{i}": {"type": "array", "items": {"$ref": f"#/$defs/d{i + 1}"}} for i in range(count)}
    return schema({"$ref": "#/$defs/d0", "$defs": arrays | {f"d{count}": {"type": "string"}}})


HOSTILE = {
    "rules of rules, deeper than the stack": lark(
        "start: A0\n" + "".join(f"A{i}: A{i + 1}\n" for i in range(4000)) + 'A4000: "a"'
    ),
    "references of references, deeper than the stack": references(1000),
    "rules that double 30 times": lark(
        "start: A0\n" + "".join(f"A{i}: A{i + 1} A{i + 1}\n" for i in range(30)) + 'A30: "a"'
    ),
    "an automaton of a million states": schema({"type": "integer", "multipleOf": 1_000_003}),
    "intersections of many loops": lark("start: A\nA: " + " & ".join(f"/(.{{{i}}})*/" for i in range(2, 20))),
    "a thousand optional properties": schema(
        {"type": "object", "properties": {f"p{i}": {"type": "integer"} for i in range(1000)}}
    ),
    "a text without end": lark('start: "a" start'),
    "a schema of itself": schema({"$ref": "#"}),
    "a schema of nothing": schema({"type": "object", "properties": {"a": False}, "required": ["a"]}),
    "brackets without end": lark("start: " + "(" * 20_000),
    "a source without end": schema({"enum": ["x" * MAX_SOURCE_BYTES]}),
}


@pytest_asyncio.fixture
async def check() -> AsyncIterator[GrammarCheck]:
    made = GrammarCheck(TEXT, len(VOCABULARY.tokens))
    yield made
    await made.close()


@pytest.mark.parametrize("name", HOSTILE)
async def test_hostile_grammar_is_refused_and_the_next_one_is_not(name: str, check: GrammarCheck) -> None:
    with pytest.raises(GrammarError) as refused:
        await check.check(HOSTILE[name])
    assert "\n" not in str(refused.value)
    await check.check(GOOD)


async def test_event_loop_goes_on_while_a_grammar_is_tried(check: GrammarCheck) -> None:
    await check.check(GOOD)
    trying = asyncio.create_task(check.check(HOSTILE["an automaton of a million states"]))
    turns = 0
    while not trying.done():
        await asyncio.sleep(0.001)
        turns += 1
    assert isinstance(trying.exception(), GrammarError)
    assert turns > 10


async def test_verdicts_are_kept(check: GrammarCheck, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = Grammar(GrammarKind.REGEX, "(")
    for _ in range(2):
        await check.check(GOOD)
        with pytest.raises(GrammarError, match="unclosed group"):
            await check.check(bad)
        await check.close()
        monkeypatch.setattr(asyncio, "create_subprocess_exec", None)  # nothing is tried a second time


async def test_a_trial_that_was_ended_between_two_grammars_is_begun_anew(check: GrammarCheck) -> None:
    await check.check(lark('start: "a"'))
    process = check._process
    assert process is not None
    process.kill()
    await process.wait()
    await check.check(lark('start: "b"'))
    with pytest.raises(GrammarError):
        await check.check(lark("start: nothing_of_the_kind"))


async def test_who_gives_up_waiting_leaves_the_next_verdict_right(check: GrammarCheck) -> None:
    await check.check(GOOD)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await check.check(HOSTILE["an automaton of a million states"])
    await check.check(Grammar(GrammarKind.REGEX, "b"))
    with pytest.raises(GrammarError, match="unclosed group"):
        await check.check(Grammar(GrammarKind.REGEX, "("))


async def test_grammars_that_wait_for_each_other_each_get_their_own_verdict(check: GrammarCheck) -> None:
    grammars = [Grammar(GrammarKind.REGEX, "a" * n if n % 2 else "(" * n) for n in range(1, 9)]
    verdicts = await asyncio.gather(*map(check.check, grammars), return_exceptions=True)
    assert [isinstance(verdict, GrammarError) for verdict in verdicts] == [False, True] * 4


async def test_model_whose_tokenizer_is_of_another_kind_takes_none() -> None:
    check = GrammarCheck(toy.text_spec(), toy.VOCAB_SIZE)
    try:
        with pytest.raises(GrammarError, match="tokenizer is of no kind"):
            await check.check(GOOD)
    finally:
        await check.close()
