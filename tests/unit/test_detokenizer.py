from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from hetspec.text.text_spec import TextSpec
from hetspec.text.tokenizer import TextModel
from tests.vocabularies import byte_level, sentencepiece

TOKENIZERS = {"byte_level": byte_level("llama-bpe").tokenizer, "sentencepiece": sentencepiece().tokenizer}
MODELS = {name: TextModel(TextSpec(tokenizer.to_str())) for name, tokenizer in TOKENIZERS.items()}
TEXTS = ["", "x", "The dog", "a 😀", "日本", " ", "  two", "naïve café, 🚀🚀 русский", "<s>", "x</s>", "<|im_end|>\n"]
EMOJI = "😀".encode()

kinds = pytest.mark.parametrize("kind", list(TOKENIZERS))


def continuation(tokenizer: Tokenizer, prompt: Sequence[int], ids: Sequence[int], skip: bool) -> str:
    """What decoding everything at once adds to the prompt's text."""
    before = tokenizer.decode(list(prompt), skip_special_tokens=skip)
    return tokenizer.decode([*prompt, *ids], skip_special_tokens=skip)[len(before) :]


def pieces(model: TextModel, prompt: Sequence[int], ids: Sequence[int], skip: bool = True) -> list[str]:
    detokenizer = model.detokenizer(prompt, skip)
    return [*(detokenizer.push(token) for token in ids), detokenizer.flush()]


def ids_of(kind: str) -> st.SearchStrategy[list[int]]:
    """Random ids mixed with the ids of whole texts and with bytes that rarely are whole characters."""
    tokenizer = TOKENIZERS[kind]
    one = st.integers(0, tokenizer.get_vocab_size() + 3).map(lambda token: [token])  # a few that do not exist
    text = st.one_of(st.sampled_from(TEXTS), st.text(max_size=5))
    encoded = text.map(lambda text: list(tokenizer.encode(text, add_special_tokens=False).ids))
    byte_ids = {token: i for token, i in tokenizer.get_vocab().items() if token.startswith("<0x")}
    run = st.lists(st.sampled_from([*EMOJI, 0x41, 0xFF]), max_size=6)
    raw = run.map(lambda values: [byte_ids[f"<0x{value:02X}>"] for value in values] if byte_ids else [])
    return st.lists(st.one_of(one, encoded, raw), max_size=8).map(lambda lists: [i for ids in lists for i in ids])


@kinds
@given(data=st.data(), skip=st.booleans(), prompt=st.sampled_from(TEXTS), bos=st.booleans())
def test_pieces_add_up_to_decoding_everything_at_once(
    kind: str, data: st.DataObject, skip: bool, prompt: str, bos: bool
) -> None:
    tokenizer, ids = TOKENIZERS[kind], data.draw(ids_of(kind))
    prompt_ids = tokenizer.encode(prompt, add_special_tokens=bos).ids
    assert "".join(pieces(MODELS[kind], prompt_ids, ids, skip)) == continuation(tokenizer, prompt_ids, ids, skip)


@kinds
@given(data=st.data())
def test_text_that_is_out_stands_whatever_follows(kind: str, data: st.DataObject) -> None:
    tokenizer, ids, more = TOKENIZERS[kind], data.draw(ids_of(kind)), data.draw(ids_of(kind))
    prompt = tokenizer.encode("The dog").ids
    out = "".join(pieces(MODELS[kind], prompt, ids)[:-1])
    assert continuation(tokenizer, prompt, [*ids, *more], skip=True).startswith(out)


@kinds
@pytest.mark.parametrize("text", TEXTS)
def test_text_comes_out_with_the_token_that_completes_it(kind: str, text: str) -> None:
    """No later than that: as soon as decoding so far ends in a whole character and no byte token, nothing is held."""
    tokenizer, model = TOKENIZERS[kind], MODELS[kind]
    prompt, ids = tokenizer.encode("The").ids, tokenizer.encode(text, add_special_tokens=False).ids
    out = pieces(model, prompt, ids)
    for count in range(1, len(ids) + 1):
        sofar = continuation(tokenizer, prompt, ids[:count], skip=True)
        if not sofar.endswith("\ufffd") and ids[count - 1] not in model.vocabulary.byte_ids:
            assert "".join(out[:count]) == sofar


def test_a_first_word_keeps_its_space_behind_a_prompt_of_text_and_special_tokens() -> None:
    model, tokenizer = MODELS["sentencepiece"], TOKENIZERS["sentencepiece"]
    word = tokenizer.encode("dog", add_special_tokens=False).ids
    end = tokenizer.token_to_id("</s>")
    assert "".join(pieces(model, tokenizer.encode("The").ids, word)) == " dog"
    assert "".join(pieces(model, [*tokenizer.encode("The").ids, end], word)) == " dog"
    assert "".join(pieces(model, [tokenizer.token_to_id("<s>")], word)) == "dog"


def test_bytes_that_turn_out_not_to_be_text_are_not_given_out_as_text() -> None:
    """The reference decoder turns the whole run into U+FFFD, the emoji at its beginning included."""
    model, tokenizer = MODELS["sentencepiece"], TOKENIZERS["sentencepiece"]
    byte_id: Callable[[int], int] = lambda value: tokenizer.token_to_id(f"<0x{value:02X}>")  # noqa: E731
    ids = [byte_id(value) for value in EMOJI + EMOJI[:2]]
    assert pieces(model, [], ids) == [""] * 6 + ["\ufffd" * 6]
