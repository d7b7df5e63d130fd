"""Renders messages with a checkpoint's own chat template: untrusted Jinja, so always in the sandbox."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

Message = Mapping[str, Any]

# What a template can raise: its own complaints, and operations on fields that are missing or of another type.
_RENDER_ERRORS = (
    jinja2.TemplateError, TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError,
)  # fmt: skip


class ChatTemplate:
    """A compiled template. special_tokens: bos_token, eos_token, ...: names a template may use."""

    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        """Raises ValueError where the source is no Jinja."""
        self._special_tokens = dict(special_tokens)
        try:
            self._template = _environment().from_string(source)
        except jinja2.TemplateSyntaxError as error:
            raise ValueError(f"chat_template: line {error.lineno}: {_one_line(error)}") from error

    def render(self, messages: Sequence[Message]) -> str:
        """The prompt's text, up to where the answer begins. Raises ValueError where the template refuses."""
        try:
            return self._template.render(
                messages=list(messages), tools=None, documents=None, add_generation_prompt=True, **self._special_tokens
            )
        except _RENDER_ERRORS as error:
            raise ValueError(f"messages: refused by the model's chat template: {_one_line(error)}") from error


class _Generation(Extension):
    """`{% generation %}` marks the assistant's text for training; in a prompt its body is all there is to it."""

    tags = {"generation"}  # noqa: RUF012 (jinja2 declares it so)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _environment() -> ImmutableSandboxedEnvironment:
    """The environment templates are written for: that of transformers."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _Generation]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(pattern: str) -> str:
    return datetime.now().strftime(pattern)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Jinja's own filter escapes HTML; a prompt must not."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
