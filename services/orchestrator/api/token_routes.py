"""Texts to token ids and back, in vLLM's shapes: what a prompt will cost, and what ids stand for."""

from __future__ import annotations

from typing import Annotated, Any, Protocol, Self

from fastapi import APIRouter
from pydantic import Field, model_validator

from orchestrator.api.errors import invalid
from orchestrator.api.prepare import check_model, check_units
from orchestrator.api.prompts import chat_prompt, check_token_ids, completion_prompts
from orchestrator.api.schemas import EmptyList, EmptyObject, Message, No, Null, Strict, Yes, field_error
from orchestrator.api.strict_json import StrictRoute
from orchestrator.engine.engine import Engine


class TokenizeBody(Strict):
    """A prompt, or messages, tokenized exactly as the generating endpoints do."""

    model: str | None = None
    prompt: str | None = None
    messages: Annotated[list[Message], Field(min_length=1)] | None = None
    add_special_tokens: bool | None = None
    return_token_strs: bool | None = None

    add_generation_prompt: Yes = None
    continue_final_message: No = None
    chat_template: Null = None
    chat_template_kwargs: EmptyObject = None
    tools: EmptyList = None

    @model_validator(mode="after")
    def _prompt_or_messages(self) -> Self:
        if (self.prompt is None) == (self.messages is None):
            raise field_error("prompt", "give either a prompt or messages")
        if self.messages is not None and self.add_special_tokens:
            raise field_error("add_special_tokens", "true may only be given with a prompt: a template writes its own")
        return self


class DetokenizeBody(Strict):
    model: str | None = None
    tokens: list[int]


class Context(Protocol):
    """What these routes are given."""

    @property
    def engine(self) -> Engine: ...


def token_routes(context: Context) -> APIRouter:
    router = APIRouter(route_class=StrictRoute)
    engine = context.engine

    @router.post("/tokenize")
    async def tokenize(body: TokenizeBody) -> dict[str, Any]:
        check_units(engine)
        check_model(body.model, engine.description)
        ids = await _ids(body, engine)
        strings = [engine.text.vocabulary.tokens.get(token, "") for token in ids] if body.return_token_strs else None
        limit = engine.description.max_context
        return {"count": len(ids), "max_model_len": limit, "tokens": ids, "token_strs": strings}

    @router.post("/detokenize")
    async def detokenize(body: DetokenizeBody) -> dict[str, str]:
        check_units(engine)
        check_model(body.model, engine.description)
        served = engine.description
        if len(body.tokens) > served.max_context:
            raise invalid("tokens", f"tokens: {len(body.tokens)} ids do not fit {served.context}")
        check_token_ids("tokens", body.tokens, served.vocab_size)
        return {"prompt": engine.text.decode(body.tokens)}

    return router


async def _ids(body: TokenizeBody, engine: Engine) -> list[int]:
    if body.messages is not None:
        prompt = await chat_prompt([message.plain for message in body.messages], engine)
    elif body.prompt:
        (prompt,) = await completion_prompts([body.prompt], engine)
    else:
        return engine.text.with_bos([]) if body.add_special_tokens is not False else []
    adds_bos = body.add_special_tokens is not False or not prompt.has_added_bos
    return list(prompt.ids if adds_bos else prompt.ids[1:])
