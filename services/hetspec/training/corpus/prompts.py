"""Prompts from JSONL files, one a line: {"messages": [...]} as OpenAI has it, {"prompt": "..."}, or {"turns": [...]} as
Spec-Bench has it, of which the first is taken. "category" groups them in reports; other fields are labels.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hetspec.text.tokenizer import TextModel
from hetspec.training.errors import TrainingError

NO_CATEGORY = "all"


@dataclass(frozen=True, slots=True)
class Prompt:
    """ids: up to where the answer begins."""

    ids: tuple[int, ...]
    category: str


def read_prompts(path: Path, text: TextModel) -> list[Prompt]:
    """Raises TrainingError that names the line, OSError."""
    prompts: list[Prompt] = []
    for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1):
        if line.strip():
            try:
                prompts.append(_prompt(json.loads(line), text))
            except ValueError as error:
                raise TrainingError(f"{path}:{number}: {error}") from error
    if not prompts:
        raise TrainingError(f"{path}: holds no prompt")
    return prompts


def spread(prompts: Sequence[Prompt], limit: int) -> list[Prompt]:
    """`limit` of them at equal distances, so that every category keeps its share; 0: all."""
    if not 0 < limit < len(prompts):
        return list(prompts)
    return [prompts[place * len(prompts) // limit] for place in range(limit)]


def _prompt(line: Any, text: TextModel) -> Prompt:
    if not isinstance(line, dict):
        raise ValueError("must be a JSON object")
    given = [name for name in _FORMS if name in line]
    if len(given) != 1:
        raise ValueError(f"must have one of {', '.join(_FORMS)}; has {', '.join(given) or 'none'}")
    category = line.get("category", NO_CATEGORY)
    if not isinstance(category, str):
        raise ValueError(f"category = {category!r:.60}, must be a string")
    return Prompt(tuple(_FORMS[given[0]](line[given[0]], text)), category)


def _messages(messages: Any, text: TextModel) -> list[int]:
    if not isinstance(messages, list) or not messages or not all(isinstance(one, dict) for one in messages):
        raise ValueError(f"messages = {messages!r:.60}, must be a list of messages")
    return text.encode_chat(messages)


def _plain(prompt: Any, text: TextModel) -> list[int]:
    if not isinstance(prompt, str):
        raise ValueError(f"prompt = {prompt!r:.60}, must be a string")
    return text.encode_prompt(prompt)


def _turns(turns: Any, text: TextModel) -> list[int]:
    """A target without a chat template is given the turn as it is."""
    if not isinstance(turns, list) or not turns or not isinstance(turns[0], str):
        raise ValueError(f"turns = {turns!r:.60}, must be a list of strings")
    if not text.spec.chat_template:
        return text.encode_prompt(turns[0])
    return text.encode_chat([{"role": "user", "content": turns[0]}])


_FORMS: dict[str, Callable[[Any, TextModel], list[int]]] = {"messages": _messages, "prompt": _plain, "turns": _turns}
