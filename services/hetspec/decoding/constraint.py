"""Which tokens may be chosen at all, and the tokens that penalties and grammars look back on."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class GrammarKind(StrEnum):
    JSON_SCHEMA = "json_schema"
    REGEX = "regex"
    LARK = "lark"


@dataclass(frozen=True, slots=True)
class Grammar:
    """What the output as a whole must be. An empty JSON schema, `{}`, is any JSON value."""

    kind: GrammarKind
    source: str


@dataclass(frozen=True, slots=True)
class Constraint:
    """withheld: ids that may not be chosen before the absolute position `withheld_before`."""

    withheld: tuple[int, ...] = ()
    withheld_before: int = 0
    grammar: Grammar | None = None


class DeadEnd(Exception):
    """Nothing may follow, or it takes too much to find out what may: the output cannot go on."""


@dataclass(frozen=True, slots=True)
class Past:
    """prompt: distinct ids, ascending, for the repetition penalty. output: every token emitted so far, in order."""

    prompt: tuple[int, ...] = ()
    output: tuple[int, ...] = ()
