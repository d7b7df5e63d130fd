import pytest
import transformers
from hypothesis import given
from hypothesis import strategies as st

from hetspec.text.text_spec import TextSpec
from hetspec.text.tokenizer import TextModel
from tests.vocabularies import Vocabulary, byte_level, sentencepiece

TEXTS = ["", " ", "The dog", "naïve 😀 日本語", "a\n\n b\t", "12345 3.14", "def f(x):\n    return x", "x<|im_end|></s>"]
KINDS = {"byte_level": byte_level("llama-bpe"), "sentencepiece": sentencepiece()}
kinds = pytest.mark.parametrize("kind", list(KINDS))
CHAT = [{"role": "user", "content": "The dog 😀"}]


def spec_of(vocabulary: Vocabulary, add_bos: bool = True, chat_template: str | None = None) -> TextSpec:
    return TextSpec(
        vocabulary.tokenizer.to_str(),
        vocabulary.chat_template if chat_template is None else chat_template,
        vocabulary.tokens.index(vocabulary.special["bos_token"]),
        add_bos=add_bos,
        special_tokens=vocabulary.special,
    )


def reference_of(vocabulary: Vocabulary) -> transformers.PreTrainedTokenizerFast:
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=vocabulary.tokenizer, chat_template=vocabulary.chat_template, **vocabulary.special
    )


@kinds
@pytest.mark.parametrize("text", TEXTS)
def test_prompt_ids_equal_transformers(kind: str, text: str) -> None:
    """Both tokenizers put BOS first."""
    vocabulary = KINDS[kind]
    assert TextModel(spec_of(vocabulary)).encode_prompt(text) == reference_of(vocabulary)(text)["input_ids"]


@kinds
@pytest.mark.parametrize("text", TEXTS)
def test_without_add_bos_nothing_is_put_in_front(kind: str, text: str) -> None:
    vocabulary = KINDS[kind]
    want = reference_of(vocabulary)(text, add_special_tokens=False)["input_ids"]
    assert TextModel(spec_of(vocabulary, add_bos=False)).encode_prompt(text) == want


@kinds
def test_a_bos_that_the_prompt_spells_out_is_not_doubled(kind: str) -> None:
    vocabulary = KINDS[kind]
    model, bos = TextModel(spec_of(vocabulary)), vocabulary.special["bos_token"]
    ids = model.encode_prompt(bos + "The dog")
    assert ids == vocabulary.tokenizer.encode(bos + "The dog", add_special_tokens=False).ids
    assert ids.count(ids[0]) == 1


def test_chat_ids_equal_transformers_where_the_template_writes_bos() -> None:
    vocabulary = KINDS["sentencepiece"]
    want = reference_of(vocabulary).apply_chat_template(CHAT, add_generation_prompt=True, return_dict=False)
    assert TextModel(spec_of(vocabulary)).encode_chat(CHAT) == want
    assert TextModel(spec_of(vocabulary, add_bos=False)).encode_chat(CHAT) == want


def test_chat_ids_get_the_bos_that_the_template_leaves_out() -> None:
    vocabulary = KINDS["byte_level"]
    want = reference_of(vocabulary).apply_chat_template(CHAT, add_generation_prompt=True, return_dict=False)
    assert TextModel(spec_of(vocabulary)).encode_chat(CHAT) == [0, *want]
    assert TextModel(spec_of(vocabulary, add_bos=False)).encode_chat(CHAT) == want


def test_a_model_without_a_template_refuses_messages() -> None:
    with pytest.raises(ValueError, match=r"^messages: the model has no chat template"):
        TextModel(spec_of(KINDS["byte_level"], chat_template="")).encode_chat(CHAT)


def test_a_lone_surrogate_is_refused() -> None:
    with pytest.raises(ValueError, match="surrogates"):
        TextModel(spec_of(KINDS["byte_level"])).encode_prompt("a\ud800")


def test_truncation_and_padding_of_the_file_do_not_touch_prompts() -> None:
    vocabulary = byte_level("smollm")
    vocabulary.tokenizer.enable_truncation(2)
    vocabulary.tokenizer.enable_padding(length=64)
    model = TextModel(spec_of(vocabulary, add_bos=False))
    want = byte_level("smollm").tokenizer.encode("The quick brown fox").ids
    assert model.encode_prompt("The quick brown fox") == want


@given(st.text())
def test_a_byte_level_prompt_decodes_to_itself(text: str) -> None:
    ids = BYTE_LEVEL.encode_prompt(text)
    detokenizer = BYTE_LEVEL.detokenizer(skip_special=False)
    assert "".join(detokenizer.push(i) for i in ids) + detokenizer.flush() == text


@pytest.mark.parametrize("text", ["{}", '{"model": {"type": "BPE", "vocab": {"a": 0}}}'])
def test_a_broken_tokenizer_is_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match=r"^tokenizer_json: "):
        TextModel(TextSpec(text))


BYTE_LEVEL = TextModel(spec_of(byte_level("smollm"), add_bos=False))
