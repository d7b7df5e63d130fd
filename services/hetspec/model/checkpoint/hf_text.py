"""The text part of a Hugging Face directory: tokenizer.json and the small files beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from hetspec.model.checkpoint.errors import CheckpointError
from hetspec.text.text_spec import TextSpec

TEXT_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "generation_config.json",
    "chat_template.jinja",
)
_NAMED = ("bos_token", "eos_token", "unk_token", "pad_token")


def read_text(path: Path) -> str:
    """Raises CheckpointError."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{path}: not UTF-8: {error}") from error


def read_json(path: Path) -> dict[str, Any]:
    """Raises CheckpointError unless the file holds a JSON object."""
    try:
        data = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: not JSON: {error}") from error
    if not isinstance(data, dict):
        raise CheckpointError(f"{path}: must hold a JSON object")
    return data


def text_from_hf(path: Path, vocab_size: int) -> TextSpec:
    """Raises CheckpointError."""
    tokenizer_path = path / "tokenizer.json"
    read_json(tokenizer_path)
    tokenizer_json = read_text(tokenizer_path)
    tokenizer = load_tokenizer(tokenizer_json, str(tokenizer_path), vocab_size)
    settings = _optional(path / "tokenizer_config.json")
    special = _special_tokens(settings, _optional(path / "special_tokens_map.json"))
    bos_id = tokenizer.token_to_id(special["bos_token"]) if "bos_token" in special else None
    return TextSpec(
        tokenizer_json=tokenizer_json,
        chat_template=_chat_template(path, settings),
        bos_id=bos_id,
        end_ids=_end_ids(path, tokenizer, special, vocab_size),
        add_bos=bos_id is not None and tokenizer.encode("").ids[:1] == [bos_id],
        special_tokens=special,
    )


def load_tokenizer(tokenizer_json: str, where: str, vocab_size: int) -> Tokenizer:
    """Raises CheckpointError when the text is no tokenizer, or has more ids than the model."""
    try:
        tokenizer = Tokenizer.from_str(tokenizer_json)
    except Exception as error:  # the library raises bare Exception, and nothing narrower
        raise CheckpointError(f"{where}: not a tokenizer: {error}") from error
    highest = max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)
    if highest >= vocab_size:
        raise CheckpointError(f"{where}: token id {highest}, the model has {vocab_size} ids")
    return tokenizer


def _optional(path: Path) -> dict[str, Any]:
    return read_json(path) if path.exists() else {}


def _special_tokens(*sources: Mapping[str, Any]) -> dict[str, str]:
    """The first source that names a token decides; a token is a string, or an object with its content."""
    found: dict[str, str] = {}
    for source in sources:
        for name in _NAMED:
            value = source.get(name)
            content = value.get("content") if isinstance(value, dict) else value
            if isinstance(content, str):
                found.setdefault(name, content)
    return found


def _chat_template(path: Path, settings: Mapping[str, Any]) -> str:
    file = path / "chat_template.jinja"
    if file.exists():
        return read_text(file)
    template = settings.get("chat_template") or ""
    if isinstance(template, list):  # several, by name
        by_name = {entry.get("name"): entry.get("template") for entry in template if isinstance(entry, dict)}
        template = by_name.get("default", "")
    if not isinstance(template, str):
        raise CheckpointError(f"{path / 'tokenizer_config.json'}: chat_template must be a string")
    return template


def _end_ids(path: Path, tokenizer: Tokenizer, special: Mapping[str, str], vocab_size: int) -> tuple[int, ...]:
    """eos_token's, and what generation_config.json (else config.json) lists."""
    generation = _optional(path / "generation_config.json")
    source = "generation_config.json" if "eos_token_id" in generation else "config.json"
    listed = (generation if "eos_token_id" in generation else read_json(path / "config.json")).get("eos_token_id")
    ids = set(listed if isinstance(listed, list) else [] if listed is None else [listed])
    if "eos_token" in special:
        ids.add(tokenizer.token_to_id(special["eos_token"]))
    ids.discard(None)
    for value in ids:
        if type(value) is not int or not 0 <= value < vocab_size:
            raise CheckpointError(f"{path / source}: eos_token_id {value!r:.60}, must be in [0, {vocab_size})")
    return tuple(sorted(ids))
