"""What the server tells, typed. `raw` is its JSON; `more` holds what a newer server tells beyond the fields here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Self, TypeVar

from hetspec_client.errors import UnexpectedAnswer
from hetspec_client.options import Json

T = TypeVar("T")


def parse(kind: Callable[[Json], T], told: Any) -> T:
    """`kind` of the JSON. Raises UnexpectedAnswer when it has another shape."""
    try:
        return kind(told)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UnexpectedAnswer(f"the answer is not of this API: {type(error).__name__}: {error}") from error


@dataclass(frozen=True, slots=True)
class Extensible:
    """Fields by name; others are kept in `more`. A field with a default may be missing."""

    more: Mapping[str, Any]

    @classmethod
    def parse(cls, told: Mapping[str, Any]) -> Self:
        known = {each.name for each in fields(cls)} - {"more"}
        rest = {name: value for name, value in told.items() if name not in known}
        return cls(more=rest, **{name: value for name, value in told.items() if name in known})


@dataclass(frozen=True, slots=True)
class Usage(Extensible):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


@dataclass(frozen=True, slots=True)
class Statistics(Extensible):
    """What an answer took: the `hetspec` object, of all choices together.

    rounds: passes of the target that chose tokens. drafted, verified, accepted: nodes that the drafter proposed, the
    verifier scored, the walk stepped on; by depth, the first is 1; by what proposed them. emitted: tokens answered, the
    end token included. accept_length: tokens a round. host_ns: host time by unit. seed: the request's, or the one
    drawn: it repeats the answer. cached_tokens: of the prompt, known from before.
    """

    mode: str
    rounds: int
    drafted: int
    verified: int
    accepted: int
    emitted: int
    accept_length: float
    host_ns: Mapping[str, int]
    seed: int
    cached_tokens: int = 0
    drafted_by_depth: Sequence[int] = ()
    accepted_by_depth: Sequence[int] = ()
    drafted_by_source: Mapping[str, int] = field(default_factory=dict)
    accepted_by_source: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Choice:
    index: int
    text: str
    finish_reason: str
    logprobs: Json | None
    raw: Json

    @classmethod
    def parse(cls, told: Json) -> Self:
        text = told["message"]["content"] if "message" in told else told["text"]
        return cls(told["index"], text or "", told["finish_reason"], told.get("logprobs"), told)


@dataclass(frozen=True, slots=True)
class Answer:
    """A chat answer or a completion: at least one choice. usage, statistics: None where the server tells none."""

    id: str
    model: str
    choices: tuple[Choice, ...]
    usage: Usage | None
    statistics: Statistics | None
    raw: Json

    @classmethod
    def parse(cls, told: Json) -> Self:
        if not told["choices"]:
            raise ValueError("no choices")
        return cls(
            id=told["id"],
            model=told["model"],
            choices=tuple(sorted(map(Choice.parse, told["choices"]), key=lambda choice: choice.index)),
            usage=Usage.parse(told["usage"]) if told.get("usage") else None,
            statistics=Statistics.parse(told["hetspec"]) if told.get("hetspec") else None,
            raw=told,
        )

    @property
    def text(self) -> str:
        """Of the first choice."""
        return self.choices[0].text


@dataclass(frozen=True, slots=True)
class Model:
    """max_model_len: tokens of prompt and answer together; None where it is not told."""

    id: str
    max_model_len: int | None
    raw: Json

    @classmethod
    def parse(cls, told: Json) -> Self:
        return cls(told["id"], told.get("max_model_len"), told)


def listed_models(told: Json) -> list[Model]:
    return [Model.parse(model) for model in told["data"]]


def token_ids(told: Json) -> list[int]:
    return list(map(int, told["tokens"]))


def prompt_text(told: Json) -> str:
    return str(told["prompt"])


@dataclass(frozen=True, slots=True)
class Readiness(Extensible):
    """status: ready, waiting or draining. missing: units without which nothing runs. replicas: by unit."""

    status: str
    missing: list[str]
    replicas: Mapping[str, int]
