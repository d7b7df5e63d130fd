"""What the two endpoints accept. Unknown fields are refused; known ones without support pass when they change nothing.

Fields of several types (`stop`, `content`) are brought to one shape before they are checked, so that an error names the
field and not a branch of a union.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BeforeValidator,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PlainValidator,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from orchestrator.api.response_format import GrammarSource, NamedGrammar, ResponseFormat, grammars_of
from orchestrator.api.strict import Strict as Strict
from orchestrator.api.strict import field_error as field_error

MAX_STOPS = 4
MAX_N = 16  # choices of a prompt
MAX_PROMPTS = 64  # of a request
MAX_NODES = 255  # with the last token 256 rows of the target's pass
MAX_DEPTH = 16


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
EmptyList = Annotated[Any, Neutral(([],))]
EmptyObject = Annotated[Any, Neutral(({},))]
No = Annotated[Any, Neutral((False,))]
Yes = Annotated[Any, Neutral((True,))]


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _as_parts(value: Any) -> Any:
    return [{"type": "text", "text": value}] if isinstance(value, str) else value


PromptText = str | tuple[int, ...]


def _prompts(value: Any) -> tuple[PromptText, ...]:
    """One prompt, a string or a list of ids, is a list of one."""
    match value:
        case str():
            return (value,)
        case [str(), *_] if all(isinstance(prompt, str) for prompt in value):
            return tuple(value)
        case [list(), *_] if all(_is_ids(prompt) for prompt in value):
            return tuple(map(tuple, value))
        case list() if _is_ids(value):
            return (tuple(value),)
    raise ValueError("must be a string or a non-empty list of token ids, or a non-empty list of either")


def _is_ids(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(type(token) is int for token in value)


Stop = Annotated[
    list[Annotated[str, Field(min_length=1)]],
    BeforeValidator(_as_list, json_schema_input_type=str | list[str]),
    Field(max_length=MAX_STOPS),
]
_Ids = Annotated[list[int], Field(min_length=1)]
_PromptInput = str | Annotated[list[str] | list[_Ids], Field(min_length=1)] | _Ids
Prompts = Annotated[
    tuple[PromptText, ...],
    PlainValidator(_prompts, json_schema_input_type=_PromptInput),
    Field(max_length=MAX_PROMPTS),
]
LogitBias = dict[Annotated[str, Field(pattern=r"^(0|[1-9][0-9]{0,9})$")], Annotated[float, Field(ge=-100, le=100)]]
Penalty = Annotated[float, Field(ge=-2, le=2)]


class StreamOptions(Strict):
    include_usage: bool | None = None
    include_obfuscation: No = None


_Part = Literal[
    "early_exit", "cost_tree", "lazy_head", "no_draft", "calibration", "look_ahead", "edc", "tvc", "batch_length"
]


MAX_OUTCOMES = 8


class HetspecOptions(Strict):
    """The extension field: how the answer is computed, which never changes a token; and what it must look like."""

    mode: Literal["plain", "chain", "tree", "lever", "ahasd", "full"] | None = None
    disable: list[_Part] | None = None
    drafting: Literal["fixed", "svip", "adaedl", "specdecpp", "banditspec_ucb", "banditspec_exp3"] | None = None
    outcomes: Annotated[int, Field(ge=1, le=MAX_OUTCOMES)] | None = None  # of a verification, drafted ahead for
    edc: Literal["session", "shared"] | None = None  # whose tables drafting control learns in
    tvc: Literal["tables", "fitted"] | None = None  # how check control foretells what tasks take
    objective: Literal["latency", "energy"] | None = None
    max_nodes: Annotated[int, Field(ge=1, le=MAX_NODES)] | None = None
    max_depth: Annotated[int, Field(ge=1, le=MAX_DEPTH)] | None = None
    min_gain: Annotated[float, Field(ge=0, le=1)] | None = None
    prefix_cache: bool | None = None
    arrival_ns: Annotated[int, Field(ge=0, lt=2**62)] | None = None  # after the beginning of a closed workload
    sessions: Annotated[int, Field(ge=1, le=MAX_PROMPTS * MAX_N)] | None = None  # choices in it, all told
    regex: GrammarSource | None = None
    grammar: GrammarSource | None = None  # Lark, as llguidance has it


class GenerationBody(Strict):
    """The fields both endpoints share."""

    model: str | None = None
    n: Annotated[int, Field(ge=1, le=MAX_N)] | None = None
    max_tokens: Annotated[int, Field(ge=0)] | None = None
    min_tokens: Annotated[int, Field(ge=0)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    frequency_penalty: Penalty | None = None
    presence_penalty: Penalty | None = None
    repetition_penalty: Annotated[float, Field(ge=0.01, le=2)] | None = None
    logit_bias: LogitBias | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**64)] | None = None
    stop: Stop | None = None
    ignore_eos: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    timeout: Annotated[float, Field(gt=0)] | None = None  # seconds, the wait for a place included
    user: str | None = None
    response_format: ResponseFormat | None = None
    hetspec: HetspecOptions | None = None

    @property
    def grammar(self) -> NamedGrammar | None:
        """What the answer must look like; None: anything goes."""
        return next(iter(self._grammars()), None)

    def _grammars(self) -> list[NamedGrammar]:
        options = self.hetspec or HetspecOptions()
        return grammars_of(self.response_format, options.regex, options.grammar)

    @model_validator(mode="after")
    def _stream_options_need_a_stream(self) -> Self:
        if self.stream_options is not None and not self.stream:
            raise field_error("stream_options", "may only be given with stream: true")
        return self

    @model_validator(mode="after")
    def _one_grammar_ends_the_answer(self) -> Self:
        given = self._grammars()
        if len(given) > 1:
            raise field_error(given[1].field, f"may not be given with {given[0].field}")
        if given and self.ignore_eos:
            raise field_error("ignore_eos", f"may not be true with {given[0].field}, which says where the answer ends")
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
    def plain(self) -> dict[str, str]:
        """As chat templates take it."""
        return {"role": self.role, "content": "".join(part.text for part in self.content)}


class ChatBody(GenerationBody):
    messages: Annotated[list[Message], Field(min_length=1)]
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    prompt_cache_key: str | None = None
    safety_identifier: str | None = None

    audio: Null = None
    function_call: Annotated[Any, Neutral(("none",))] = None
    functions: EmptyList = None
    metadata: EmptyObject = None
    modalities: Annotated[Any, Neutral((["text"],))] = None
    parallel_tool_calls: Annotated[Any, Neutral((True, False))] = None
    prediction: Null = None
    prompt_cache_retention: Annotated[Any, Neutral(("in-memory", "in_memory"))] = None
    reasoning_effort: Annotated[Any, Neutral(("none",))] = None
    service_tier: Annotated[Any, Neutral(("auto", "default"))] = None
    store: No = None
    tool_choice: Annotated[Any, Neutral(("none", "auto"))] = None
    tools: EmptyList = None
    verbosity: Annotated[Any, Neutral(("medium",))] = None
    web_search_options: Null = None

    @model_validator(mode="after")
    def _fields_agree(self) -> Self:
        if self.top_logprobs is not None and not self.logprobs:
            raise field_error("top_logprobs", "may only be given with logprobs: true")
        if None not in (self.max_tokens, self.max_completion_tokens) and self.max_tokens != self.max_completion_tokens:
            raise field_error("max_completion_tokens", "differs from max_tokens: give one of them")
        if self.max_tokens == 0:
            raise field_error("max_tokens", "0 leaves nothing to answer with")
        return self


class CompletionBody(GenerationBody):
    prompt: Prompts
    logprobs: Annotated[int, Field(ge=0, le=5)] | None = None
    echo: bool | None = None
    best_of: int | None = None

    suffix: Annotated[Any, Neutral(("",))] = None

    @model_validator(mode="after")
    def _fields_agree(self) -> Self:
        if self.best_of not in (None, self.n or 1):
            raise field_error("best_of", f"not supported: only n ({self.n or 1}) or null may be given")
        if self.max_tokens == 0 and not self.echo:
            raise field_error("max_tokens", "0 may only be given with echo: true")
        return self
