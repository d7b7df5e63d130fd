"""Prompts for the real model: our own, or those of a JSONL file of the same form named by HETSPEC_PROMPTS.

A line: {"question_id": …, "category": …, "turns": [first user message, …]}. First turns alone are used.
"""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path

from hetspec.model.checkpoint import open_checkpoint
from hetspec.text.tokenizer import TextModel
from weight_store.config import embedded_model

_OWN = Path(__file__).parent / "data" / "prompts.jsonl"


@cache
def prompts() -> tuple[str, ...]:
    path = Path(os.environ.get("HETSPEC_PROMPTS") or _OWN)
    return tuple(json.loads(line)["turns"][0] for line in path.read_text().splitlines())


def spread(count: int) -> list[str]:
    """`count` of them, evenly over the file, so that every category has its share."""
    known = prompts()
    return [known[i * len(known) // count] for i in range(min(count, len(known)))]


@cache
def real_text() -> TextModel:
    return TextModel(open_checkpoint(embedded_model()).text)


def chat_ids(prompt: str) -> tuple[int, ...]:
    return tuple(real_text().encode_chat([{"role": "user", "content": prompt}]))
