import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models

from hetspec.text.vocabulary import Vocabulary
from tests.vocabularies import byte_level, sentencepiece

BYTE_LEVEL, SENTENCEPIECE = byte_level("smollm").tokenizer, sentencepiece().tokenizer
BYTE_LEVEL_VOCABULARY, SENTENCEPIECE_VOCABULARY = Vocabulary(BYTE_LEVEL.to_str()), Vocabulary(SENTENCEPIECE.to_str())


@pytest.mark.parametrize("tokenizer", [BYTE_LEVEL, SENTENCEPIECE])
def test_tokens_are_those_of_the_tokenizers_library(tokenizer: Tokenizer) -> None:
    vocabulary = Vocabulary(tokenizer.to_str())
    assert {token: i for i, token in vocabulary.tokens.items()} == tokenizer.get_vocab(with_added_tokens=True)
    special = {i for i, token in tokenizer.get_added_tokens_decoder().items() if token.special}
    assert vocabulary.special == special


def test_a_unigram_vocabulary_is_read_by_place() -> None:
    tokenizer = Tokenizer(models.Unigram([("<unk>", 0.0), ("a", -1.0), ("b", -2.0)], 0))
    assert Vocabulary(tokenizer.to_str()).tokens == {0: "<unk>", 1: "a", 2: "b"}


@given(st.text())
def test_bytes_of_a_texts_tokens_are_the_texts(text: str) -> None:
    ids = BYTE_LEVEL.encode(text, add_special_tokens=False).ids
    assert b"".join(BYTE_LEVEL_VOCABULARY.token_bytes(i) for i in ids) == text.encode()


@given(st.text())
def test_bytes_of_sentencepiece_tokens_are_the_texts_behind_its_first_space(text: str) -> None:
    ids = SENTENCEPIECE.encode(text, add_special_tokens=False).ids
    joined = b"".join(SENTENCEPIECE_VOCABULARY.token_bytes(i) for i in ids)
    assert joined == (b" " + text.encode() if text else b"").replace("\u2581".encode(), b" ")


def test_text_of_part_of_a_character_is_marked() -> None:
    (first, *_) = BYTE_LEVEL.encode("\U0001f9ff", add_special_tokens=False).ids
    assert BYTE_LEVEL_VOCABULARY.token_text(first) == "\ufffd"


def test_a_special_token_shows_its_name() -> None:
    end = BYTE_LEVEL.token_to_id("<|im_end|>")
    assert BYTE_LEVEL_VOCABULARY.token_text(end) == "<|im_end|>"


def test_padding_and_holes_are_missing() -> None:
    spec = json.loads(Tokenizer(models.WordLevel({"a": 0, "b": 2}, "a")).to_str())
    assert Vocabulary(json.dumps(spec)).missing(5).tolist() == [1, 3, 4]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"model": {}}'])
def test_what_is_no_tokenizer_is_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match="tokenizer_json: "):
        Vocabulary(text)
