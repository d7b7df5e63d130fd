"""Small trained tokenizers, each both as a `tokenizers` object and as the fields a GGUF file would carry for it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

CORPUS = [
    "The quick brown fox jumps over the lazy dog, and the dog does not mind it at all.",
    "def add(left, right):\n    return left + right\n\n\nfor i in range(10):\n    print(add(i, 12345))\n",
    "Wer reitet so spät durch Nacht und Wind? Es ist der Vater mit seinem Kind.",
    "It's 2024; we'll see 3.14159 and 100,000 things that they've said they'd do.",
    "naïve café, señor, Ünïcödé, 日本語, русский язык, emoji 😀 🚀",
]
CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
INSTRUCT = (
    "{{ bos_token }}{% for message in messages %}"
    "{% if message['role'] == 'user' %}[INST] {{ message['content'] }} [/INST]"
    "{% else %} {{ message['content'] }}{{ eos_token }}{% endif %}{% endfor %}"
)
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True)
class Vocabulary:
    """special: names for transformers. gguf: metadata below "tokenizer.ggml.", without tokens and token types."""

    tokenizer: Tokenizer
    tokens: list[str]
    token_types: list[int]
    chat_template: str
    special: dict[str, str]
    gguf: dict[str, Any] = field(default_factory=dict)


def byte_level(pre: str) -> Vocabulary:
    """Byte-level BPE as SmolLM ("smollm"), Llama 3 ("llama-bpe"), Qwen2 ("qwen2") or GPT-2 ("gpt-2") have it."""
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokenizer = Tokenizer(models.BPE(ignore_merges=pre == "llama-bpe"))
    tokenizer.normalizer = normalizers.NFC() if pre == "qwen2" else None
    tokenizer.pre_tokenizer = _pre_tokenizer(pre)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=360, special_tokens=special, initial_alphabet=alphabet, show_progress=False, min_frequency=1
    )
    tokenizer.train_from_iterator(CORPUS * 2, trainer)
    adds_bos = pre == "llama-bpe"
    if adds_bos:
        tokenizer.post_processor = _bos_first(special[0], 0)
    tokens = _by_id(tokenizer)
    merges = [" ".join(pair) for pair in json.loads(tokenizer.to_str())["model"]["merges"]]
    gguf = {
        "model": "gpt2",
        "pre": pre,
        "merges": merges,
        "bos_token_id": 0,
        "eos_token_id": 2,
        "add_bos_token": adds_bos,
    }
    names = {"bos_token": special[0], "eos_token": special[2]}
    return Vocabulary(tokenizer, tokens, [3] * 3 + [1] * (len(tokens) - 3), CHATML, names, gguf)


def sentencepiece() -> Vocabulary:
    """SentencePiece BPE with byte fallback, as Llama 2, TinyLlama and Mistral have it."""
    pieces = _pieces()
    first = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    tokens = first + pieces
    scores = [0.0] * len(first) + [-float(rank) for rank in range(len(pieces))]
    ids = {token: i for i, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(ids, _merges(pieces), unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.add_special_tokens(first[:3])
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.post_processor = _bos_first("<s>", 1)
    gguf = {"model": "llama", "scores": scores, "bos_token_id": 1, "eos_token_id": 2, "unknown_token_id": 0}
    names = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    types = [2, 3, 3] + [6] * 256 + [1] * len(pieces)
    return Vocabulary(tokenizer, tokens, types, INSTRUCT, names, gguf)


def _pieces() -> list[str]:
    """What a trained BPE calls tokens, merged ones first, best first, then single characters: SentencePiece's order."""
    trained = Tokenizer(models.BPE())
    trained.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    trained.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    trained.train_from_iterator(CORPUS * 2, trainers.BpeTrainer(vocab_size=200, show_progress=False))
    tokens = [token for token in _by_id(trained) if not set(token) & set("日本語😀🚀")]  # left to byte fallback
    return sorted(tokens, key=lambda token: len(token) == 1)


def _merges(pieces: list[str]) -> list[tuple[str, str]]:
    """Every split of a piece in two pieces, best piece first."""
    known = {piece: rank for rank, piece in enumerate(pieces)}
    merges = []
    for piece in pieces:
        splits = [(piece[:cut], piece[cut:]) for cut in range(1, len(piece))]
        merges += sorted((s for s in splits if s[0] in known and s[1] in known), key=lambda s: -len(s[0]))
    return merges


def _pre_tokenizer(pre: str) -> pre_tokenizers.PreTokenizer:
    if pre == "gpt-2":
        return pre_tokenizers.ByteLevel(add_prefix_space=False)
    if pre == "smollm":
        digits = pre_tokenizers.Digits(individual_digits=True)
        return pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    pattern = _LLAMA3.replace("{1,3}", "") if pre == "qwen2" else _LLAMA3
    split = pre_tokenizers.Split(Regex(pattern), "isolated")
    return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def _bos_first(token: str, token_id: int) -> processors.TemplateProcessing:
    return processors.TemplateProcessing(f"{token} $A", f"{token} $A {token}:1 $B:1", [(token, token_id)])


def _by_id(tokenizer: Tokenizer) -> list[str]:
    return sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().__getitem__)
