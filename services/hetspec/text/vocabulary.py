"""What a tokenizer file says each id stands for, read from its JSON alone."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_WORD_START = "\u2581"  # SentencePiece writes a space so


class Vocabulary:
    """id -> token, and the bytes a token adds to a text.

    tokens: as the tokenizer file spells them, added ones included. special: ids that are markup, not text.
    byte_ids: tokens that stand for one byte each where no other fits (SentencePiece's byte fallback).
    """

    __slots__ = ("_byte_level", "byte_ids", "special", "tokens")

    def __init__(self, tokenizer_json: str) -> None:
        """Raises ValueError where the JSON is no tokenizer's."""
        spec = _parse(tokenizer_json)
        added = spec.get("added_tokens") or []
        self.tokens: dict[int, str] = _model_tokens(spec["model"]) | {int(t["id"]): t["content"] for t in added}
        self.special = frozenset(int(t["id"]) for t in added if t["special"])
        self._byte_level = '"ByteLevel"' in json.dumps(spec.get("decoder"))
        self.byte_ids = frozenset(
            i for i, token in self.tokens.items() if not self._byte_level and _BYTE_TOKEN.fullmatch(token)
        )

    def token_bytes(self, token_id: int) -> bytes:
        """What the token adds to a text; a special token's name. Bytes of one token need not be whole characters."""
        token = self.tokens.get(token_id, "")
        if token_id in self.special:
            return token.encode()
        if token_id in self.byte_ids:
            return bytes.fromhex(token[3:5])
        if self._byte_level and all(char in _bytes_of_chars() for char in token):
            return bytes(_bytes_of_chars()[char] for char in token)
        return token.replace(_WORD_START, " ").encode()

    def token_text(self, token_id: int) -> str:
        """`token_bytes` as text; bytes that are no whole character show as U+FFFD."""
        return self.token_bytes(token_id).decode("utf-8", errors="replace")

    def missing(self, size: int) -> NDArray[np.intp]:
        """Ids below `size`, the model's number of logits, that stand for no token: padding and holes."""
        return np.array([i for i in range(size) if i not in self.tokens], dtype=np.intp)


def _parse(tokenizer_json: str) -> dict[str, Any]:
    try:
        spec = json.loads(tokenizer_json)
    except json.JSONDecodeError as error:
        raise ValueError(f"tokenizer_json: {error}") from error
    if not isinstance(spec, dict) or not isinstance(spec.get("model"), dict) or "vocab" not in spec["model"]:
        raise ValueError("tokenizer_json: has no model.vocab")
    return spec


def _model_tokens(model: Mapping[str, Any]) -> dict[int, str]:
    """BPE, WordPiece and WordLevel map token -> id; Unigram lists [token, score] by id."""
    vocab = model["vocab"]
    if isinstance(vocab, list):
        return {i: entry[0] for i, entry in enumerate(vocab)}
    return {int(i): token for token, i in vocab.items()}


@cache
def _bytes_of_chars() -> dict[str, int]:
    """Byte-level BPE's alphabet (GPT-2): printable bytes stand for themselves, the others for U+0100 and on."""
    printable = {*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAC + 1), *range(0xAE, 0xFF + 1)}
    others = (byte for byte in range(256) if byte not in printable)
    return {chr(byte): byte for byte in printable} | {chr(0x100 + i): byte for i, byte in enumerate(others)}
