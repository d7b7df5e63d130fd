"""From messages and prompts to token ids. No unit works for it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hetspec.text.chat_template import Message
from hetspec.text.tokenizer import TextModel
from orchestrator.api.errors import invalid
from orchestrator.api.schemas import PromptText
from orchestrator.engine.engine import Engine


@dataclass(frozen=True, slots=True)
class Prompt:
    """field: its path in the request. text: as it was given; of ids, what they decode to.

    has_added_bos: the first id is a BOS that the text does not hold.
    """

    field: str
    ids: tuple[int, ...]
    text: str = ""
    has_added_bos: bool = False


async def chat_prompt(messages: Sequence[Message], engine: Engine) -> Prompt:
    """Raises ApiError that names `messages`."""
    _check_length("messages", (message["content"] for message in messages), engine)
    for index, message in enumerate(messages):
        _check_characters(f"messages[{index}].content", message["content"])
    try:
        ids = await asyncio.to_thread(engine.text.encode_chat, messages)
    except ValueError as error:  # the template's own refusal, of the order of roles for one
        raise invalid("messages", f"messages: {str(error).removeprefix('messages: ')}") from error
    return _not_empty(Prompt("messages", tuple(ids)))


async def completion_prompts(prompts: Sequence[PromptText], engine: Engine) -> list[Prompt]:
    """Raises ApiError that names `prompt`, and which of several."""
    vocab_size = engine.description.vocab_size
    fields = [f"prompt[{index}]" if len(prompts) > 1 else "prompt" for index in range(len(prompts))]
    for field, prompt in zip(fields, prompts, strict=True):
        if isinstance(prompt, str):
            _check_length(field, [prompt], engine)
            _check_characters(field, prompt)
        else:
            check_token_ids(field, prompt, vocab_size)
    encoded = await asyncio.to_thread(_encode_all, engine.text, prompts)
    return [
        _not_empty(Prompt(field, ids, text, has_added_bos))
        for field, (ids, text, has_added_bos) in zip(fields, encoded, strict=True)
    ]


def check_token_ids(field: str, ids: Sequence[int], vocab_size: int) -> None:
    for index, token in enumerate(ids):
        if not 0 <= token < vocab_size:
            raise invalid(f"{field}[{index}]", f"{field}[{index}]: token id {token} is not in [0, {vocab_size})")


def _encode_all(text: TextModel, prompts: Sequence[PromptText]) -> list[tuple[tuple[int, ...], str, bool]]:
    """Of each: ids, text, whether a BOS was added."""
    encoded = []
    for prompt in prompts:
        if isinstance(prompt, str):
            ids = text.encode(prompt)
            whole = text.with_bos(ids)
            encoded.append((tuple(whole), prompt, len(whole) > len(ids)))
        else:
            encoded.append((prompt, text.decode(prompt), False))
    return encoded


def _not_empty(prompt: Prompt) -> Prompt:
    if not prompt.ids:
        raise invalid(prompt.field, f"{prompt.field}: holds no tokens")
    return prompt


def _check_length(field: str, texts: Iterable[str], engine: Engine) -> None:
    """Refuses what cannot fit, however well it packs, before it is cut into tokens, which takes its time."""
    characters = sum(len(text) for text in texts)
    served = engine.description
    if characters > served.max_context * engine.text.longest_token_chars:
        message = f"{field}: {characters} characters do not fit {served.context}"
        raise invalid(field, message, "context_length_exceeded")


def _check_characters(field: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        message = f"{field}: character {error.start} is half of a surrogate pair, which is no character"
        raise invalid(field, message) from error
