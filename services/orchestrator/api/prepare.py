"""From a checked body to the engine's request: model, prompt ids, room in the context, seed. No unit works for it."""

from __future__ import annotations

import asyncio
import secrets
import uuid
from collections.abc import Iterable
from dataclasses import dataclass

from hetspec.decoding.sampling import NoiseKey, Sampling
from hetspec.text.tokenizer import TextModel
from orchestrator.api.errors import ApiError, invalid
from orchestrator.api.schemas import ChatBody, CompletionBody, GenerationBody, HetspecOptions
from orchestrator.engine.engine import Engine, EngineDescription
from orchestrator.engine.errors import UnitsUnavailable
from orchestrator.engine.request import GenerationRequest, Mode

DEFAULT_NODES, DEFAULT_DEPTH = 32, 5
DEFAULT_COMPLETION_TOKENS = 16  # OpenAI's
SEED_BITS = 53  # of a seed that is drawn: every JSON reader gives it back whole


@dataclass(frozen=True, slots=True)
class Defaults:
    mode: Mode
    timeout_s: float


@dataclass(frozen=True, slots=True)
class _Prompt:
    field: str
    ids: tuple[int, ...]


async def prepare_chat(body: ChatBody, engine: Engine, defaults: Defaults) -> GenerationRequest:
    check_units(engine)
    check_model(body.model, engine.description)
    messages = [{"role": message.role, "content": message.text} for message in body.messages]
    _check_length("messages", (message["content"] for message in messages), engine)
    for index, message in enumerate(messages):
        _check_characters(f"messages[{index}].content", message["content"])
    try:
        ids = await asyncio.to_thread(engine.text.encode_chat, messages)
    except ValueError as error:  # the template's own refusal, of the order of roles for one
        raise invalid("messages", f"messages: {str(error).removeprefix('messages: ')}") from error
    prompt = _Prompt("messages", tuple(ids))
    limit_field = "max_tokens" if body.max_completion_tokens is None else "max_completion_tokens"
    limit = body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens
    max_tokens = _max_tokens(prompt, limit, limit_field, engine.description.max_context, default=None)
    top_logprobs = (body.top_logprobs or 0) if body.logprobs else None
    return _request(body, prompt, max_tokens, top_logprobs, defaults)


async def prepare_completion(body: CompletionBody, engine: Engine, defaults: Defaults) -> GenerationRequest:
    check_units(engine)
    check_model(body.model, engine.description)
    if isinstance(body.prompt, str):
        _check_length("prompt", [body.prompt], engine)
        _check_characters("prompt", body.prompt)
    prompt = _Prompt("prompt", await _completion_ids(body.prompt, engine.text, engine.description.vocab_size))
    max_context = engine.description.max_context
    max_tokens = _max_tokens(prompt, body.max_tokens, "max_tokens", max_context, default=DEFAULT_COMPLETION_TOKENS)
    return _request(body, prompt, max_tokens, body.logprobs, defaults)


def check_units(engine: Engine) -> None:
    if missing := missing_units(engine):
        raise UnitsUnavailable(f"not ready: {', '.join(missing)}")


def missing_units(engine: Engine) -> list[str]:
    return [unit for unit, ready in engine.ready().items() if not ready]


def _check_length(field: str, texts: Iterable[str], engine: Engine) -> None:
    """Refuses what cannot fit, however well it packs, before it is cut into tokens, which takes its time."""
    characters = sum(len(text) for text in texts)
    max_context = engine.description.max_context
    if characters > max_context * engine.text.longest_token_chars:
        message = f"{field}: {characters} characters do not fit the context of {max_context} tokens"
        raise invalid(field, message, "context_length_exceeded")


def _check_characters(field: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        message = f"{field}: character {error.start} is half of a surrogate pair, which is no character"
        raise invalid(field, message) from error


def check_model(name: str | None, description: EngineDescription) -> None:
    if name not in (None, "default", description.model):
        message = f"model {name!r} is not served here: this server serves {description.model!r}"
        raise ApiError(404, message, param="model", code="model_not_found")


async def _completion_ids(prompt: str | tuple[int, ...], text: TextModel, vocab_size: int) -> tuple[int, ...]:
    if isinstance(prompt, str):
        return tuple(await asyncio.to_thread(text.encode_prompt, prompt))
    for index, token in enumerate(prompt):
        if not 0 <= token < vocab_size:
            raise invalid(f"prompt[{index}]", f"prompt[{index}]: token id {token} is not in [0, {vocab_size})")
    return prompt


def _max_tokens(prompt: _Prompt, asked: int | None, asked_field: str, max_context: int, default: int | None) -> int:
    """How many tokens may come out. Where no number is asked for: what is left of the context, at most `default`."""
    count = len(prompt.ids)
    if count == 0:
        raise invalid(prompt.field, f"{prompt.field}: holds no tokens")
    room = max_context - count
    if room < 1:
        message = f"{prompt.field}: {count} tokens leave no room in the context of {max_context}"
        raise invalid(prompt.field, message, "context_length_exceeded")
    if asked is None:
        return room if default is None else min(default, room)
    if asked > room:
        message = (
            f"{asked_field}: the context holds {max_context} tokens; {count} in {prompt.field} and {asked} asked for"
        )
        raise invalid(asked_field, message, "context_length_exceeded")
    return asked


def _request(
    body: GenerationBody, prompt: _Prompt, max_tokens: int, top_logprobs: int | None, defaults: Defaults
) -> GenerationRequest:
    options = body.hetspec or HetspecOptions()
    return GenerationRequest(
        request_id=uuid.uuid4().hex,
        prompt_ids=prompt.ids,
        sampling=_sampling(body),
        noise=NoiseKey(secrets.randbits(SEED_BITS) if body.seed is None else body.seed),
        max_tokens=max_tokens,
        mode=Mode(options.mode) if options.mode else defaults.mode,
        max_nodes=options.max_nodes or DEFAULT_NODES,
        max_depth=options.max_depth or DEFAULT_DEPTH,
        stop=tuple(body.stop or ()),
        top_logprobs=top_logprobs,
        deadline=asyncio.get_running_loop().time() + defaults.timeout_s,
    )


def _sampling(body: GenerationBody) -> Sampling:
    return Sampling(
        temperature=1.0 if body.temperature is None else body.temperature,
        top_k=body.top_k or 0,
        top_p=1.0 if body.top_p is None else body.top_p,
        min_p=body.min_p or 0.0,
    )
