"""What an answer has to look like: `response_format`, `hetspec.regex` and `hetspec.grammar`."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from hetspec.decoding.constraint import Grammar, GrammarKind
from hetspec.decoding.grammar import check_size
from orchestrator.api.errors import invalid
from orchestrator.api.json_schema import check_depth, check_keywords
from orchestrator.api.strict import Strict, field_error
from orchestrator.engine.engine import Engine

_RULE_OPTIONS = re.compile(r"^[ \t]*\w[\w-]*[ \t]*\[(.*)\][ \t]*:", re.MULTILINE)
_STRING = re.compile(r'"(?:\\.|[^"\\])*"')
_IGNORED = re.compile(r"\b(temperature|stop)\s*=")

_ANY_OBJECT = Grammar(GrammarKind.JSON_SCHEMA, '{"type": "object"}')

GrammarSource = Annotated[str, Field(min_length=1)]


class JsonSchema(Strict):
    """OpenAI's. A schema is always held to as a whole, whatever `strict` says."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
    description: str | None = None
    schema_: Annotated[dict[str, Any], Field(alias="schema"), AfterValidator(check_depth)]
    strict: bool | None = None


class ResponseFormat(Strict):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None

    @model_validator(mode="after")
    def _schema_goes_with_its_type(self) -> Self:
        if (self.type == "json_schema") != (self.json_schema is not None):
            needed = "is required with" if self.json_schema is None else "may only be given with"
            raise field_error("response_format.json_schema", f'{needed} type "json_schema"')
        return self


@dataclass(frozen=True, slots=True)
class NamedGrammar:
    """field: where the request gives it."""

    field: str
    grammar: Grammar


def grammars_of(response_format: ResponseFormat | None, regex: str | None, lark: str | None) -> list[NamedGrammar]:
    """At most one of them may be given: this is for others to see to."""
    given: list[NamedGrammar] = []
    if response_format is not None and response_format.json_schema is not None:
        source = json.dumps(response_format.json_schema.schema_)
        grammar = Grammar(GrammarKind.JSON_SCHEMA, source)
        given.append(NamedGrammar("response_format.json_schema.schema", grammar))
    elif response_format is not None and response_format.type == "json_object":
        given.append(NamedGrammar("response_format", _ANY_OBJECT))
    if regex is not None:
        given.append(NamedGrammar("hetspec.regex", Grammar(GrammarKind.REGEX, regex)))
    if lark is not None:
        given.append(NamedGrammar("hetspec.grammar", Grammar(GrammarKind.LARK, lark)))
    return given


async def check_grammar(named: NamedGrammar, engine: Engine) -> None:
    """Raises ApiError that names the field, with the reason of whoever refuses it."""
    try:
        check_size(named.grammar)
        if named.grammar.kind is GrammarKind.JSON_SCHEMA:
            check_keywords(json.loads(named.grammar.source))
        await engine.check_grammar(named.grammar)
        if named.grammar.kind is GrammarKind.LARK:
            _check_rule_options(named.grammar.source)
    except ValueError as error:
        raise invalid(named.field, f"{named.field}: {error}") from error


def _check_rule_options(lark: str) -> None:
    """Raises ValueError for what llguidance leaves to its host: a rule's own temperature, and text to be taken back."""
    for options in _RULE_OPTIONS.findall(lark):
        if ignored := _IGNORED.search(_STRING.sub('""', options)):
            raise ValueError(f"the option {ignored[1]!r} of a rule is not supported")
