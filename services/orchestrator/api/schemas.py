"""What the two endpoints accept. Unknown fields are refused; known ones without support pass when they change nothing.

Fields of several types (`stop`, `content`) are brought to one shape before they are checked, so that an error names the
field and not a branch of a union.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PlainValidator,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

MAX_STOPS = 4
MAX_NODES = 64
MAX_DEPTH = 16


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


@dataclass(frozen=True, slots=True, eq=False)  # typing keeps one Annotated of equal metadata, and 0 equals False
class Neutral:
    """Marks a field that is not supported: null and `values`, which change nothing, pass; anything else is refused."""

    values: tuple[Any, ...] = ()

    def check(self, value: Any) -> Any:
        for neutral in (None, *self.values):
            if value == neutral and isinstance(value, bool) == isinstance(neutral, bool):
                return value
        allowed = " or ".join(repr(v) for v in (*self.values, None)).replace("None", "null")
        raise PydanticCustomError("not_supported", "not supported: only {allowed} may be given", {"allowed": allowed})

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self.check)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"enum": [None, *self.values]}


Null = Annotated[Any, Neutral()]
Zero = Annotated[Any, Neutral((0,))]
One = Annotated[Any, Neutral((1,))]
EmptyList = Annotated[Any, Neutral(([],))]
EmptyObject = Annotated[Any, Neutral(({},))]
No = Annotated[Any, Neutral((False,))]


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _as_parts(value: Any) -> Any:
    return [{"type": "text", "text": value}] if isinstance(value, str) else value


def _prompt(value: Any) -> str | tuple[int, ...]:
    match value:
        case str():
            try:
                value.encode()
            except UnicodeEncodeError:
                raise ValueError("the text holds a lone surrogate") from None
            return value
        case [int() as first, *_] if not isinstance(first, bool):
            if any(type(token) is not int for token in value):
                raise ValueError("a list must hold token ids only")
            return tuple(value)
        case [str() | list(), *_]:
            raise ValueError("several prompts are not supported: give one string or one list of token ids")
        case _:
            raise ValueError("must be a string or a non-empty list of token ids")


Stop = Annotated[
    list[Annotated[str, Field(min_length=1)]],
    BeforeValidator(_as_list, json_schema_input_type=str | list[str]),
    Field(max_length=MAX_STOPS),
]
Prompt = Annotated[
    str | tuple[int, ...],
    PlainValidator(_prompt, json_schema_input_type=Annotated[str, Field()] | Annotated[list[int], Field(min_length=1)]),
]


class StreamOptions(Strict):
    include_usage: bool | None = None
    include_obfuscation: No = None


class HetspecOptions(Strict):
    """The extension field: how the answer is computed. It never changes which tokens come out."""

    mode: Literal["plain", "chain", "tree"] | None = None
    max_nodes: Annotated[int, Field(ge=1, le=MAX_NODES)] | None = None
    max_depth: Annotated[int, Field(ge=1, le=MAX_DEPTH)] | None = None


class GenerationBody(Strict):
    """The fields both endpoints share."""

    model: str | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**64)] | None = None
    stop: Stop | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: str | None = None
    hetspec: HetspecOptions | None = None

    n: One = None
    frequency_penalty: Zero = None
    presence_penalty: Zero = None
    repetition_penalty: One = None
    logit_bias: EmptyObject = None
    ignore_eos: No = None
    min_tokens: Zero = None

    @model_validator(mode="after")
    def _stream_options_need_a_stream(self) -> Self:
        if self.stream_options is not None and not self.stream:
            raise field_error("stream_options", "may only be given with stream: true")
        return self


class TextPart(Strict):
    type: Literal["text"]
    text: str


Content = Annotated[
    list[TextPart], BeforeValidator(_as_parts, json_schema_input_type=str | list[TextPart]), Field(min_length=1)
]


class Message(Strict):
    role: Literal["system", "developer", "user", "assistant"]
    content: Content

    # What OpenAI's client sends back with an assistant's earlier answer.
    name: Null = None
    refusal: Null = None
    audio: Null = None
    annotations: EmptyList = None
    function_call: Null = None
    tool_calls: EmptyList = None

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.content)


class ChatBody(GenerationBody):
    messages: Annotated[list[Message], Field(min_length=1)]
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None

    audio: Null = None
    function_call: Annotated[Any, Neutral(("none",))] = None
    functions: EmptyList = None
    metadata: EmptyObject = None
    modalities: Annotated[Any, Neutral((["text"],))] = None
    parallel_tool_calls: Annotated[Any, Neutral((True, False))] = None
    prediction: Null = None
    reasoning_effort: Annotated[Any, Neutral(("none",))] = None
    response_format: Annotated[Any, Neutral(({"type": "text"},))] = None
    service_tier: Annotated[Any, Neutral(("auto", "default"))] = None
    store: No = None
    tool_choice: Annotated[Any, Neutral(("none", "auto"))] = None
    tools: EmptyList = None
    web_search_options: Null = None

    @model_validator(mode="after")
    def _fields_agree(self) -> Self:
        if self.top_logprobs is not None and not self.logprobs:
            raise field_error("top_logprobs", "may only be given with logprobs: true")
        if None not in (self.max_tokens, self.max_completion_tokens) and self.max_tokens != self.max_completion_tokens:
            raise field_error("max_completion_tokens", "differs from max_tokens: give one of them")
        return self


class CompletionBody(GenerationBody):
    prompt: Prompt
    logprobs: Annotated[int, Field(ge=0, le=5)] | None = None

    best_of: One = None
    echo: No = None
    suffix: Annotated[Any, Neutral(("",))] = None


def field_error(field: str, message: str) -> PydanticCustomError:
    """An error of the whole request that names one field."""
    return PydanticCustomError("fields_disagree", "{message}", {"field": field, "message": message})
