"""Prompt ids of the real model equal those of transformers, template and all."""

from __future__ import annotations

from typing import Any

import pytest
import transformers
from tokenizers import Tokenizer, pre_tokenizers

from tests.prompts import prompts, real_text
from weight_store.config import embedded_model

TEXTS = (
    "",
    " ",
    "\n\n",
    "Hello, world!",
    "  leading, trailing and   inner   spaces  ",
    "tabs\tand\r\nlines\n\n\n",
    "1234567890, 3.14159 and 1,000,000 at 50% ½ ² ٣",
    "It's 2024; they'll SAY they'd DONE it",
    "def add(left, right):\n    return left + right  # sum\n\n\tif x != y: pass\n",
    "naïve café, Ünïcödé, e\u0301 and \u00e9",
    "日本語、中文 한국어 русский العربية हिन्दी",
    "😀🚀👩‍👩‍👧‍👦🏳️‍🌈",
    "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
    "<|im_start|>",
    "<s>[INST] Hi [/INST]</s><|endoftext|>",
    "\u0000\u0001\u007f\u0080\ufffd",
    "x" * 300,
    *prompts(),
)
CHATS = (
    *([{"role": "user", "content": text}] for text in TEXTS),
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi 🙂"}],
    [
        {"role": "user", "content": "One"},
        {"role": "assistant", "content": "Two\n"},
        {"role": "user", "content": " Three "},
    ],
)


def test_chats_render_as_by_transformers() -> None:
    """The template is applied by transformers, to a tokenizer that is ours."""
    text = real_text()
    reference = transformers.PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(text.spec.tokenizer_json),
        chat_template=text.spec.chat_template,
        **text.spec.special_tokens,
    )
    check_chats(reference)


@pytest.mark.soak
def test_prompt_ids_equal_those_of_the_tokenizer_that_transformers_reads_from_the_file() -> None:
    path = embedded_model()
    reference = transformers.AutoTokenizer.from_pretrained(str(path.parent), gguf_file=path.name)
    # transformers drops what the file says of digits (tokenizer.ggml.pre = smollm): each stands alone.
    digits = pre_tokenizers.Digits(individual_digits=True)
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    reference.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, byte_level])
    for text in TEXTS:
        assert real_text().encode_prompt(text) == reference.encode(text, add_special_tokens=False)
    check_chats(reference)


def check_chats(reference: Any) -> None:
    for chat in CHATS:
        expected = reference.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
        assert real_text().encode_chat(chat) == expected
