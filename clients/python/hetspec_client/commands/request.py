"""Options of a request. One that is not given is not sent: the server's default holds. It also checks the values."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from hetspec_client.commands.text import read_text
from hetspec_client.errors import InvalidInput
from hetspec_client.options import Json


def _length(help_: str, *names: str, metavar: str | None = None) -> Any:
    return Option(*names, help=help_, rich_help_panel="Length", metavar=metavar)


def _sampling(help_: str, *names: str, metavar: str | None = None) -> Any:
    return Option(*names, help=help_, rich_help_panel="Sampling", metavar=metavar)


def _shape(help_: str, *names: str, metavar: str | None = None) -> Any:
    return Option(*names, help=help_, rich_help_panel="Structured output", metavar=metavar)


def _computing(help_: str, metavar: str | None = None) -> Any:
    return Option(help=help_, rich_help_panel="How it is computed: never changes the text", metavar=metavar)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    model: Annotated[str | None, Option(help="Default: the one that is served.")] = None
    timeout: Annotated[float | None, Option(help="Seconds until the server gives the request up.")] = None

    max_tokens: Annotated[int | None, _length("At most so many tokens.")] = None
    min_tokens: Annotated[int | None, _length("At least so many tokens.")] = None
    ignore_eos: Annotated[bool | None, _length("Go on after an end token.", "--ignore-eos")] = None
    stop: Annotated[list[str] | None, _length("End before this text; up to 4 times.")] = None

    temperature: Annotated[float | None, _sampling("0: always the likeliest token.")] = None
    top_p: Annotated[float | None, _sampling("Of the likeliest tokens: so much probability.")] = None
    top_k: Annotated[int | None, _sampling("Of the likeliest tokens: so many; 0: all.")] = None
    min_p: Annotated[float | None, _sampling("At least this share of the likeliest one's probability.")] = None
    seed: Annotated[int | None, _sampling("The same seed gives the same answer.")] = None
    frequency_penalty: Annotated[float | None, _sampling("For every time that a token was answered.")] = None
    presence_penalty: Annotated[float | None, _sampling("For having been answered.")] = None
    repetition_penalty: Annotated[float | None, _sampling("Divides what was in prompt or answer; 1: none.")] = None
    logit_bias: Annotated[
        list[str] | None, _sampling("Added to the logit of a token id; may be repeated.", metavar="ID=BIAS")
    ] = None

    response_format: Annotated[str | None, _shape("text or json_object.")] = None
    json_schema: Annotated[Path | None, _shape("The answer is JSON of this schema.", metavar="FILE")] = None
    grammar: Annotated[Path | None, _shape("The answer follows this Lark grammar.", metavar="FILE")] = None
    regex: Annotated[str | None, _shape("The answer matches, as a whole.")] = None

    mode: Annotated[str | None, _computing("plain, chain, tree, lever, ahasd or full.")] = None
    disable: Annotated[
        list[str] | None, _computing("A part of the mode, such as early_exit; may be repeated.", metavar="PART")
    ] = None
    objective: Annotated[str | None, _computing("What a token should take little of: latency or energy.")] = None
    drafting: Annotated[str | None, _computing("How long chains are drafted: fixed, svip, adaedl, ...")] = None
    outcomes: Annotated[int | None, _computing("Of a verification, that are drafted ahead for.")] = None
    edc: Annotated[str | None, _computing("Where drafting control learns: session or shared.")] = None
    tvc: Annotated[str | None, _computing("How check control foretells times: tables or fitted.")] = None
    max_nodes: Annotated[int | None, _computing("Of one draft.")] = None
    max_depth: Annotated[int | None, _computing("Of one draft.")] = None
    min_gain: Annotated[float | None, _computing("Of drafts: the least chance of a node to be accepted.")] = None
    prefix_cache: Annotated[bool | None, _computing("Use what is kept of earlier prompts that began so.")] = None

    def options(self) -> Json:
        """As the SDK takes them. Raises InvalidInput."""
        given: Json = {field.name: getattr(self, field.name) for field in fields(self)}
        given["logit_bias"] = _biases(self.logit_bias) if self.logit_bias else None
        given["response_format"] = _response_format(self.response_format, given.pop("json_schema"))
        given["grammar"] = read_text(self.grammar) if self.grammar else None
        return {name: value for name, value in given.items() if value is not None}


def _biases(pairs: list[str]) -> dict[str, float]:
    biases = {}
    for pair in pairs:
        token, _, bias = pair.partition("=")
        try:
            biases[token] = float(bias)
        except ValueError:
            raise InvalidInput(f"--logit-bias {pair}: must be ID=BIAS, as in 42=-100") from None
    return biases


def _response_format(kind: str | None, schema: Path | None) -> Json | None:
    if schema is None:
        return None if kind is None else {"type": kind}
    if kind is not None:
        raise InvalidInput("--json-schema and --response-format exclude each other")
    try:
        content = json.loads(read_text(schema))
    except ValueError as error:
        raise InvalidInput(f"{schema}: not JSON: {error}") from error
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": content, "strict": True}}
