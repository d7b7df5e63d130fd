from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetspec.text.text_spec import TextSpec
from hetspec.text.tokenizer import TextModel
from orchestrator.api.echo import prompt_offsets
from orchestrator.api.prompts import Prompt
from tests.vocabularies import byte_level, sentencepiece

BYTES = TextModel(TextSpec(byte_level("smollm").tokenizer.to_str()))
PIECES = TextModel(TextSpec(sentencepiece().tokenizer.to_str(), bos_id=1, add_bos=True))
words = st.lists(
    st.sampled_from(["Wind", " spät", "日本", "é", "😀", "<|im_start|>", "\n", " ", "x1", "e\u0301"]), min_size=1
)
texts = words.map("".join) | st.text(st.characters(codec="utf-8"), min_size=1)


def prompt_of(model: TextModel, text: str) -> Prompt:
    ids = model.encode(text)
    return Prompt("prompt", tuple(model.with_bos(ids)), text, model.with_bos(ids) != ids)


@pytest.mark.parametrize("model", [BYTES, PIECES], ids=["bytes", "pieces"])
@given(text=texts)
def test_a_token_begins_where_the_text_of_those_before_it_ends(model: TextModel, text: str) -> None:
    """The oracle counts the whole characters in front of a token's first byte; SentencePiece adds a space in front."""
    prompt = prompt_of(model, text)
    if model.decode(model.encode(text)) != text:
        return  # the tokenizer normalises it
    data, added = text.encode(), 1 if model is PIECES else 0
    sizes = [len(model.vocabulary.token_bytes(token)) for token in prompt.ids]
    if prompt.has_added_bos:
        sizes[0] = 0
    begins = [max(0, sum(sizes[:place]) - added) for place in range(len(sizes))]
    assert prompt_offsets(prompt, model) == [len(data[:begin].decode(errors="ignore")) for begin in begins]


@pytest.mark.parametrize("model", [BYTES, PIECES], ids=["bytes", "pieces"])
@given(text=texts)
def test_offsets_never_fall_and_stay_within_the_text(model: TextModel, text: str) -> None:
    offsets = prompt_offsets(prompt_of(model, text), model)
    assert offsets == sorted(offsets)
    assert offsets[0] == 0
    assert max(offsets) <= len(text)
