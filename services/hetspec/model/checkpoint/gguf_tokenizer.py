"""A GGUF file's tokenizer -> tokenizer.json, as the model's own on the Hugging Face side would be.

Two kinds: "gpt2", byte-level BPE whose merges are listed and whose pre-tokenizer is named; "llama", SentencePiece BPE,
whose merges follow from the scores.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from hetspec.model.checkpoint.errors import CheckpointError
from hetspec.model.checkpoint.gguf_config import Metadata
from hetspec.model.checkpoint.hf_text import load_tokenizer
from hetspec.text.text_spec import TextSpec

_PREFIX = "tokenizer.ggml."
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE = range(1, 7)
_PADDING = re.compile(r"\[PAD\d+\]")  # the converter's filling between the tokenizer's ids and the embedding's
# Tokens that end a turn wherever a chat template writes them, whatever the file calls its end of sequence.
_TURN_ENDS = ("<|im_end|>", "<|eot_id|>", "<|end|>", "<end_of_turn>")
_ROLES = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
_END_ROLES = ("eos", "eot", "eom")
_KNOWN = re.compile(
    r"model|pre|tokens|token_type|scores|merges|token_type_count|add_(bos|eos|sep)_token|add_space_prefix"
    r"|remove_extra_whitespaces|(\w+_)?token_id"
)

_WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|" + _WORDS % r"\p{N}{1,3}"
_QWEN2 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|" + _WORDS % r"\p{N}"


def _byte_level(use_regex: bool) -> dict[str, Any]:
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}


def _split(pattern: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def _sequence(*steps: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Sequence", "pretokenizers": list(steps)}


_GPT2 = _byte_level(use_regex=True)
_SMOLLM = _sequence({"type": "Digits", "individual_digits": True}, _byte_level(use_regex=True))
_LLAMA_BPE = _sequence(_split(_LLAMA3), _byte_level(use_regex=False))
_QWEN = _sequence(_split(_QWEN2), _byte_level(use_regex=False))
# By the name that llama.cpp's converter gives: the pre-tokenizer, and what else differs.
_PRE: dict[str, dict[str, Any]] = {
    "gpt-2": {"pre_tokenizer": _GPT2},
    "smollm": {"pre_tokenizer": _SMOLLM},
    "llama-bpe": {"pre_tokenizer": _LLAMA_BPE, "ignore_merges": True, "add_bos": True},
    "qwen2": {"pre_tokenizer": _QWEN, "normalizer": {"type": "NFC"}},
    "deepseek-r1-qwen": {"pre_tokenizer": _QWEN, "normalizer": {"type": "NFC"}},
}


def text_from_gguf(meta: Metadata, path: object, vocab_size: int) -> TextSpec:
    """Raises CheckpointError."""
    vocabulary = _Vocabulary(meta, path, vocab_size)
    kind = meta.get(_PREFIX + "model", str)
    if kind == "gpt2":
        tokenizer, add_bos = _byte_level_bpe(meta, path, vocabulary)
    elif kind == "llama":
        tokenizer, add_bos = _sentencepiece_bpe(meta, path, vocabulary), True
    else:
        raise CheckpointError(f"{path}: tokenizer model {kind!r:.40} is not supported, only gpt2 and llama")
    ids = {role: vocabulary.role(role) for role in (*_ROLES.values(), *_END_ROLES)}
    template = meta.get("tokenizer.chat_template", str, "")
    add_bos = meta.get(_PREFIX + "add_bos_token", bool, add_bos) and ids["bos"] is not None
    if meta.get(_PREFIX + "add_eos_token", bool, False):
        raise CheckpointError(f"{path}: {_PREFIX}add_eos_token = true is not supported")
    if add_bos:
        tokenizer["post_processor"] = _prepend(vocabulary.tokens[ids["bos"] or 0], ids["bos"] or 0)
    text = json.dumps(tokenizer, ensure_ascii=False)
    load_tokenizer(text, str(path), vocab_size)
    return TextSpec(
        tokenizer_json=text,
        chat_template=template,
        bos_id=ids["bos"],
        end_ids=_end_ids(ids, vocabulary, template),
        add_bos=add_bos,
        special_tokens={name: vocabulary.tokens[i] for name, role in _ROLES.items() if (i := ids[role]) is not None},
    )


class _Vocabulary:
    """The token list with its types, checked. ids: without the converter's padding."""

    def __init__(self, meta: Metadata, path: object, vocab_size: int) -> None:
        for key in meta.items(_PREFIX):
            if not _KNOWN.fullmatch(key.removeprefix(_PREFIX)):
                raise CheckpointError(f"{path}: metadata key {key} is not known")
        self._meta, self._path = meta, path
        self.tokens = meta.strings(_PREFIX + "tokens")
        self.types = meta.numbers(_PREFIX + "token_type", [_NORMAL] * len(self.tokens))
        if len(self.tokens) > vocab_size or len(self.types) != len(self.tokens):
            raise CheckpointError(
                f"{path}: {len(self.tokens)} tokens with {len(self.types)} types, the embedding has {vocab_size} rows"
            )
        self.ids: dict[str, int] = {}
        for token_id, token in enumerate(self.tokens):
            if self.types[token_id] == _UNUSED and _PADDING.fullmatch(token):
                continue
            if token in self.ids:
                raise CheckpointError(f"{path}: token {token!r:.60} has two ids, {self.ids[token]} and {token_id}")
            self.ids[token] = token_id

    def role(self, role: str) -> int | None:
        key = f"{_PREFIX}{role}_token_id"
        value: int | None = self._meta.get(key, int, None)
        if value is not None and not 0 <= value < len(self.tokens):
            raise CheckpointError(f"{self._path}: {key} = {value}, must be in [0, {len(self.tokens)})")
        return value

    def added(self) -> list[dict[str, Any]]:
        """Tokens matched in the text before anything else."""
        plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
        return [
            {"id": i, "content": self.tokens[i], **plain, "special": self.types[i] != _USER_DEFINED}
            for i in range(len(self.tokens))
            if self.types[i] in (_UNKNOWN, _CONTROL, _USER_DEFINED)
        ]


def _byte_level_bpe(meta: Metadata, path: object, vocabulary: _Vocabulary) -> tuple[dict[str, Any], bool]:
    """The tokenizer, and whether such models put BOS in front when the file does not say."""
    name = meta.get(_PREFIX + "pre", str, "")
    if name not in _PRE:
        raise CheckpointError(f"{path}: pre-tokenizer {name!r:.40} is not supported, only {', '.join(_PRE)}")
    pre = _PRE[name]
    merges = [merge.split(" ") for merge in meta.strings(_PREFIX + "merges")]
    for parts in merges:
        if len(parts) != 2 or not {*parts, "".join(parts)} <= vocabulary.ids.keys():
            raise CheckpointError(f"{path}: merge {' '.join(parts)!r:.60} must name two tokens that make a third")
    tokenizer = _tokenizer(vocabulary, merges, ignore_merges=pre.get("ignore_merges", False))
    tokenizer |= {"normalizer": pre.get("normalizer"), "pre_tokenizer": pre["pre_tokenizer"], "decoder": _GPT2}
    return tokenizer, pre.get("add_bos", False)


def _sentencepiece_bpe(meta: Metadata, path: object, vocabulary: _Vocabulary) -> dict[str, Any]:
    scores = meta.numbers(_PREFIX + "scores")
    if len(scores) != len(vocabulary.tokens):
        raise CheckpointError(f"{path}: {len(scores)} token scores, must be {len(vocabulary.tokens)}")
    unknown = vocabulary.role("unknown")
    tokenizer = _tokenizer(
        vocabulary,
        _merges_by_score(vocabulary, scores),
        unk_token=None if unknown is None else vocabulary.tokens[unknown],
        byte_fallback=True,
        fuse_unk=True,
    )
    prefix = meta.get(_PREFIX + "add_space_prefix", bool, True)
    spaces = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    prepend: list[dict[str, Any]] = [{"type": "Prepend", "prepend": "▁"}] if prefix else []
    strip: list[dict[str, Any]] = [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if prefix else []
    unspaces = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
    tokenizer["normalizer"] = {"type": "Sequence", "normalizers": [*prepend, spaces]}
    decoders = [unspaces, {"type": "ByteFallback"}, {"type": "Fuse"}, *strip]
    tokenizer["decoder"] = {"type": "Sequence", "decoders": decoders}
    return tokenizer


def _merges_by_score(vocabulary: _Vocabulary, scores: Sequence[float]) -> list[list[str]]:
    """Every way to make a token of two others, best score first; among equals as transformers orders them."""
    ids = {t: i for t, i in vocabulary.ids.items() if vocabulary.types[i] in (_NORMAL, _UNUSED)}
    merges: list[tuple[float, int, int, str, str]] = []
    for token, token_id in ids.items():
        pairs = [(token[:cut], token[cut:]) for cut in range(1, len(token))]
        pairs = sorted((p for p in pairs if p[0] in ids and p[1] in ids), key=lambda p: (ids[p[0]], ids[p[1]]))
        merges += ((scores[token_id], len(left), len(right), left, right) for left, right in pairs)
    merges.sort(key=lambda m: m[:3], reverse=True)
    return [[left, right] for *_, left, right in merges]


def _tokenizer(vocabulary: _Vocabulary, merges: list[list[str]], **model: Any) -> dict[str, Any]:
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": vocabulary.added(),
        "normalizer": None,
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": None,
        "model": {"type": "BPE", **model, "vocab": vocabulary.ids, "merges": merges},
    }


def _prepend(token: str, token_id: int) -> dict[str, Any]:
    special = {"SpecialToken": {"id": token, "type_id": 0}}
    first, second = ({"Sequence": {"id": name, "type_id": i}} for i, name in enumerate("AB"))
    return {
        "type": "TemplateProcessing",
        "single": [special, first],
        "pair": [special, first, {"SpecialToken": {"id": token, "type_id": 1}}, second],
        "special_tokens": {token: {"id": token, "ids": [token_id], "tokens": [token]}},
    }


def _end_ids(ids: dict[str, int | None], vocabulary: _Vocabulary, template: str) -> tuple[int, ...]:
    ends: Iterable[int | None] = (ids[role] for role in _END_ROLES)
    turns = (vocabulary.ids[t] for t in _TURN_ENDS if t in template and t in vocabulary.ids)
    return tuple(sorted({i for i in (*ends, *turns) if i is not None}))
