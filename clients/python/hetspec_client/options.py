"""The options of a request, named as the API names them.

What is not given is not sent: the server's default holds. Fields that are not listed here pass as well, and the server
refuses those that it does not know.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

Mode = Literal["plain", "chain", "tree", "lever", "ahasd", "full"]
Json = dict[str, Any]


class HetspecOptions(TypedDict, total=False):
    """Sent inside the request's `hetspec` object."""

    mode: str | None
    disable: Sequence[str] | None
    objective: str | None
    drafting: str | None
    outcomes: int | None
    edc: str | None
    tvc: str | None
    max_nodes: int | None
    max_depth: int | None
    min_gain: float | None
    prefix_cache: bool | None
    grammar: str | None
    regex: str | None


class Options(HetspecOptions, total=False):
    """What both endpoints take. hetspec: further fields of that object. timeout: the request's deadline, in seconds."""

    model: str | None
    max_tokens: int | None
    min_tokens: int | None
    ignore_eos: bool | None
    temperature: float | None
    top_p: float | None
    top_k: int | None
    min_p: float | None
    frequency_penalty: float | None
    presence_penalty: float | None
    repetition_penalty: float | None
    logit_bias: Mapping[str, float] | None
    seed: int | None
    stop: str | Sequence[str] | None
    n: int | None
    response_format: Mapping[str, Any] | None
    timeout: float | None
    user: str | None
    hetspec: Mapping[str, Any] | None


class ChatOptions(Options, total=False):
    max_completion_tokens: int | None
    logprobs: bool | None
    top_logprobs: int | None


class CompletionOptions(Options, total=False):
    logprobs: int | None
    echo: bool | None


def body(options: Mapping[str, Any]) -> Json:
    """The request's JSON, with hetspec's own options where they belong."""
    given = {name: value for name, value in options.items() if value is not None}
    extension = dict(given.pop("hetspec", {}))
    extension |= {name: given.pop(name) for name in HetspecOptions.__annotations__ if name in given}
    return given | ({"hetspec": extension} if extension else {})
