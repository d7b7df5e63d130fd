"""A toy model whose every answer is known in closed form: the next token is a function of the tokens before it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from tokenizers import Tokenizer, decoders
from tokenizers.models import WordLevel

from hetspec.decoding.sampling import NoiseKey, Sampling
from hetspec.rpc.messages import Rows
from hetspec.text.text_spec import TextSpec

LETTERS = "abcdefghijklmnopqrstuvwxyz"
END_ID = len(LETTERS)
VOCAB_SIZE = END_ID + 1
HIDDEN_SIZE = 4  # 16 bits of the state in each float32, exactly


def text_spec() -> TextSpec:
    """One letter a token; the last id ends an answer."""
    vocab = {letter: index for index, letter in enumerate(LETTERS)} | {"</s>": END_ID}
    tokenizer = Tokenizer(WordLevel(vocab, unk_token="</s>"))
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens(["</s>"])
    return TextSpec(tokenizer_json=tokenizer.to_str(), end_ids=(END_ID,))


def hidden_row(ids: Sequence[int]) -> Rows:
    """[1, HIDDEN_SIZE]: a hash of every token up to here, so that a wrong history shows in the next token."""
    digest = hashlib.blake2b(np.asarray(ids, dtype="<u4").tobytes(), digest_size=8).digest()
    return np.frombuffer(digest, dtype="<u2").astype(np.float32).reshape(1, HIDDEN_SIZE)


def choose(row: Rows, sampling: Sampling, noise: NoiseKey, position: int) -> int:
    """The token after `row`. Six letters make up most of the text, so that drafts and stop strings hit now and then."""
    key = b"" if sampling.temperature == 0 else f"{noise} {position}".encode()
    draw = int.from_bytes(hashlib.blake2b(row.tobytes() + key, digest_size=4).digest(), "little")
    return draw % VOCAB_SIZE if draw % 7 == 0 else draw // 7 % 6


def next_token(ids: Sequence[int], sampling: Sampling, noise: NoiseKey) -> int:
    return choose(hidden_row(ids), sampling, noise, len(ids))


def continuation(prompt: Sequence[int], max_tokens: int, sampling: Sampling, noise: NoiseKey) -> list[int]:
    """What plain decoding emits, the end token included."""
    ids = list(prompt)
    while len(ids) < len(prompt) + max_tokens and ids[len(prompt) :][-1:] != [END_ID]:
        ids.append(next_token(ids, sampling, noise))
    return ids[len(prompt) :]
