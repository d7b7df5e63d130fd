"""Tokenizers read from GGUF give the ids of the tokenizers they were made from, and of llama.cpp."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import transformers
from tokenizers import Tokenizer

from hetspec.model.checkpoint import CheckpointError, open_checkpoint
from hetspec.model.checkpoint.gguf_config import Metadata
from hetspec.model.checkpoint.gguf_tokenizer import text_from_gguf
from hetspec.text.text_spec import TextSpec
from tests.models import save_tokenizer
from tests.vocabularies import Vocabulary, byte_level, sentencepiece
from weight_store.config import embedded_model

MAKERS = {
    "sentencepiece": sentencepiece,
    "smollm": lambda: byte_level("smollm"),
    "llama-bpe": lambda: byte_level("llama-bpe"),
    "qwen2": lambda: byte_level("qwen2"),
    "gpt-2": lambda: byte_level("gpt-2"),
}
GOLDEN = json.loads((Path(__file__).parents[1] / "data" / "llama_cpp_ids.json").read_text())
TEXTS = [
    "",
    " ",
    "   ",
    "\n",
    "Hello, world!",
    " leading and trailing ",
    "two  spaces   and\ttabs\t\tand\r\nlines\n\n\nend",
    "1234567890 3.14159 1,000,000 x2 2x ½ ٣",
    "It's they'll WE'VE I'm you'd DON'T o'clock",
    "def add(left, right):\n    return left + right  # sum\n\n\tif x != y: pass\n",
    "naïve café Ünïcödé señor",
    "e\u0301 and \u00e9, \u1e9b\u0323",
    "日本語のテキスト、中文 한국어",
    "русский العربية עברית हिन्दी",
    "emoji 😀🚀👩‍👩‍👧‍👦🏳️‍🌈",
    "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
    "<s>[INST] Hi [/INST]</s>",
    "a<|im_end|>b </s> c",
    "<|endoftext|>",
    "▁ underline ▁▁",
    "\u0000\u0001\u007f\u0080\ufffd",
    "!!!???...---***///\\\\\\ (a[b]{c}) <d> $e %f &g",
    "https://example.org/a?b=c&d=%20#e user@example.org",
    "x" * 200,
    "The quick brown fox " * 20,
]


def metadata(vocabulary: Vocabulary, **changes: Any) -> Metadata:
    """As the file would have it; a change to None leaves the key out."""
    types = vocabulary.token_types
    keys = {"tokens": vocabulary.tokens, "token_type": types, **vocabulary.gguf, **changes}
    values = {f"tokenizer.ggml.{key}": value for key, value in keys.items() if value is not None}
    return Metadata("tiny.gguf", {**values, "tokenizer.chat_template": vocabulary.chat_template})


def text_of(vocabulary: Vocabulary, **changes: Any) -> TextSpec:
    return text_from_gguf(metadata(vocabulary, **changes), "tiny.gguf", len(vocabulary.tokens))


@pytest.fixture(scope="module", params=MAKERS)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[TextSpec, Any]:
    """What is read from GGUF, and transformers' tokenizer of the same vocabulary."""
    vocabulary = MAKERS[request.param]()
    directory = tmp_path_factory.mktemp("tokenizer")
    save_tokenizer(directory, vocabulary)
    return text_of(vocabulary), transformers.AutoTokenizer.from_pretrained(directory)


@pytest.mark.parametrize("text", TEXTS)
def test_ids_are_those_of_the_tokenizer_it_was_made_from(pair: tuple[TextSpec, Any], text: str) -> None:
    spec, reference = pair
    ours = Tokenizer.from_str(spec.tokenizer_json)
    assert ours.encode(text, add_special_tokens=False).ids == reference.encode(text, add_special_tokens=False)
    assert ours.encode(text).ids == reference.encode(text)


@pytest.mark.parametrize("text", TEXTS)
def test_text_is_that_of_the_tokenizer_it_was_made_from(pair: tuple[TextSpec, Any], text: str) -> None:
    spec, reference = pair
    ours = Tokenizer.from_str(spec.tokenizer_json)
    ids = reference.encode(text, add_special_tokens=False)
    theirs = reference.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
    assert ours.decode(ids, skip_special_tokens=False) == theirs


def test_special_tokens_and_template_are_those_it_was_made_from(pair: tuple[TextSpec, Any]) -> None:
    spec, reference = pair
    assert spec.bos_id == reference.bos_token_id
    assert reference.eos_token_id in spec.end_ids
    assert spec.special_tokens == {key: str(value) for key, value in reference.special_tokens_map.items()}
    assert spec.chat_template == reference.chat_template
    assert spec.add_bos == (reference.encode("")[:1] == [reference.bos_token_id])


@pytest.mark.parametrize("case", GOLDEN["smollm2"], ids=lambda case: repr(case["text"][:20]))
def test_ids_of_the_embedded_model_are_those_of_llama_cpp(case: dict[str, Any], embedded: Tokenizer) -> None:
    assert embedded.encode(case["text"], add_special_tokens=False).ids == case["ids"]


@pytest.fixture(scope="module")
def embedded() -> Tokenizer:
    return Tokenizer.from_str(open_checkpoint(embedded_model()).text.tokenizer_json)


@pytest.mark.parametrize("text", TEXTS)
def test_the_embedded_models_ids_decode_to_the_text_they_were_made_from(text: str, embedded: Tokenizer) -> None:
    ids = embedded.encode(text, add_special_tokens=False).ids
    assert embedded.decode(ids, skip_special_tokens=False) == text


@pytest.mark.parametrize(
    ("pre", "declared", "adds"),
    [("llama-bpe", None, True), ("qwen2", None, False), ("llama-bpe", False, False), ("qwen2", True, True)],
)
def test_bos_is_added_as_the_file_says_and_else_as_the_kind_does(pre: str, declared: bool | None, adds: bool) -> None:
    assert text_of(byte_level(pre), add_bos_token=declared).add_bos == adds


def test_sentencepiece_adds_bos_unless_the_file_says_otherwise() -> None:
    assert text_of(sentencepiece()).add_bos
    assert not text_of(sentencepiece(), add_bos_token=False).add_bos
    assert not text_of(sentencepiece(), bos_token_id=None).add_bos


def test_sentencepiece_without_a_space_in_front_keeps_the_text_as_it_is() -> None:
    tokenizer = Tokenizer.from_str(text_of(sentencepiece(), add_space_prefix=False).tokenizer_json)
    for text in ("dog", " dog", "the dog  "):
        assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False).ids) == text


def test_end_of_turn_and_what_the_template_ends_turns_with_end_an_answer() -> None:
    vocabulary = byte_level("qwen2")  # its template ends turns with <|im_end|>, id 2
    assert text_of(vocabulary, eos_token_id=0).end_ids == (0, 2)
    assert text_of(vocabulary, eos_token_id=0, eot_token_id=5).end_ids == (0, 2, 5)


def test_padding_of_the_embedding_gets_no_token() -> None:
    vocabulary = byte_level("qwen2")
    count = len(vocabulary.tokens)
    changes = {"tokens": [*vocabulary.tokens, f"[PAD{count}]"], "token_type": [*vocabulary.token_types, 5]}
    spec = text_from_gguf(metadata(vocabulary, **changes), "tiny.gguf", count + 1)
    assert Tokenizer.from_str(spec.tokenizer_json).get_vocab_size() == count


def test_user_defined_tokens_are_matched_whole_but_are_not_special() -> None:
    vocabulary = byte_level("qwen2")
    tokens, types = [*vocabulary.tokens, "<think>"], [*vocabulary.token_types, 4]
    spec = text_from_gguf(metadata(vocabulary, tokens=tokens, token_type=types), "tiny.gguf", len(tokens))
    tokenizer = Tokenizer.from_str(spec.tokenizer_json)
    ids = tokenizer.encode("a<think>b", add_special_tokens=False).ids
    assert len(tokens) - 1 in ids
    assert tokenizer.decode(ids, skip_special_tokens=True) == "a<think>b"


VOCABULARY = byte_level("smollm")


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"pre": "tekken"}, "tekken"),
        ({"pre": None}, "pre-tokenizer ''"),
        ({"model": "t5"}, "t5"),
        ({"model": None}, "tokenizer.ggml.model"),
        ({"surprise": 1}, "surprise"),
        ({"tokens": None}, "tokenizer.ggml.tokens"),
        ({"tokens": [*VOCABULARY.tokens[:-1], "a"]}, "'a' has two ids"),
        ({"tokens": [1, 2]}, "strings"),
        ({"token_type": [1]}, "1 types"),
        ({"merges": ["a"]}, "merge 'a'"),
        ({"merges": ["q zz"]}, "merge 'q zz'"),
        ({"bos_token_id": 99999}, "bos_token_id = 99999"),
        ({"eos_token_id": "2"}, "eos_token_id"),
        ({"add_bos_token": 1}, "add_bos_token"),
        ({"add_eos_token": True}, "add_eos_token"),
        ({"model": "llama"}, "scores"),
        ({"model": "llama", "scores": [0.0]}, "1 token scores"),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_line_that_names_it(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        text_of(VOCABULARY, **changes)
    assert named in str(caught.value)
    assert "tiny.gguf" in str(caught.value)


def test_more_tokens_than_the_embedding_has_rows_are_refused() -> None:
    with pytest.raises(CheckpointError, match="the embedding has 10 rows"):
        text_from_gguf(metadata(VOCABULARY), "tiny.gguf", 10)
