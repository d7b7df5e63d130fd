from __future__ import annotations

import json
import math

from hypothesis import given
from hypothesis import strategies as st

from hetspec.rpc.messages import TokenLogprobs
from hetspec.text.vocabulary import Vocabulary
from orchestrator.api.logprobs import ChatLogprobs, CompletionLogprobs
from orchestrator.engine.request import EmittedToken
from tests.contract.fake_engine import byte_level_text, tokens
from tests.vocabularies import sentencepiece

TEXT = byte_level_text()


@given(st.lists(st.text(st.characters(codec="utf-8"), min_size=1), min_size=1))
def test_offsets_point_at_the_characters_of_the_text(pieces):
    """With one token a byte, the bytes that lie between two offsets are those of the characters between them."""
    logprobs = CompletionLogprobs(TEXT.vocabulary)
    offsets = [at for piece in pieces for at in logprobs.render(tokens(TEXT, piece, top=0))["text_offset"]]
    text = "".join(pieces)
    assert offsets == [index for index, char in enumerate(text) for _ in char.encode()]


@given(st.text(st.characters(codec="utf-8")))
def test_chat_bytes_add_up_to_the_text(text):
    entries = ChatLogprobs(TEXT.vocabulary).render(tokens(TEXT, text, top=0))["content"]
    assert bytes(byte for entry in entries for byte in entry["bytes"]).decode() == text


def test_end_token_takes_no_place_in_the_text():
    logprobs = CompletionLogprobs(TEXT.vocabulary)
    told = logprobs.render((*tokens(TEXT, "ab", top=0), EmittedToken(256, TokenLogprobs(-1.0))))
    assert told["tokens"] == ["a", "b", "<end>"]
    assert told["text_offset"] == [0, 1, 2]


def test_impossible_token_is_still_json():
    token = EmittedToken(40, TokenLogprobs(-math.inf, (41, 40), (0.0, -math.inf)))
    chat = ChatLogprobs(TEXT.vocabulary).render([token])
    completion = CompletionLogprobs(TEXT.vocabulary).render([token])
    json.dumps([chat, completion], allow_nan=False)
    assert chat["content"][0]["logprob"] == completion["token_logprobs"][0] == -9999.0


def test_chosen_token_is_among_the_best_even_when_it_is_not():
    token = EmittedToken(40, TokenLogprobs(-7.0, (41, 42), (-0.1, -3.0)))
    (top,) = CompletionLogprobs(TEXT.vocabulary).render([token])["top_logprobs"]
    assert list(top.values()) == [-0.1, -3.0, -7.0]


def test_a_part_of_a_character_is_written_by_its_bytes():
    """Two of them would read alike as U+FFFD, and be one key."""
    first, second = (token.id for token in tokens(TEXT, "é", top=0))
    told = CompletionLogprobs(TEXT.vocabulary).render([EmittedToken(first, TokenLogprobs(-1.0, (second,), (-0.5,)))])
    assert told["tokens"] == ["bytes:\\xc3"]
    assert told["top_logprobs"] == [{"bytes:\\xa9": -0.5, "bytes:\\xc3": -1.0}]


def test_of_tokens_that_read_the_same_the_best_one_stays():
    """SentencePiece has a byte token and a piece for one letter."""
    vocabulary = Vocabulary(sentencepiece().tokenizer.to_str())
    ids = {token: id_ for id_, token in vocabulary.tokens.items()}
    byte, piece = ids["<0x6E>"], ids["n"]
    told = CompletionLogprobs(vocabulary).render([EmittedToken(byte, TokenLogprobs(-3.0, (piece,), (-0.25,)))])
    assert (told["token_logprobs"], told["top_logprobs"]) == ([-3.0], [{"n": -0.25}])
