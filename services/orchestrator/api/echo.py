"""Where a prompt's tokens begin in its text, for the logprobs of an echoed prompt."""

from __future__ import annotations

import codecs

from hetspec.text.tokenizer import TextModel
from orchestrator.api.prompts import Prompt


def prompt_offsets(prompt: Prompt, text: TextModel) -> list[int]:
    """In characters. A character is counted with the token that completes it; a BOS that was added takes no place."""
    ids = prompt.ids[1:] if prompt.has_added_bos else prompt.ids
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    ends = [0]
    for token in ids:
        ends.append(ends[-1] + len(decoder.decode(text.vocabulary.token_bytes(token))))
    unwritten = max(0, ends[-1] - len(text.decode(ids)))  # the space that SentencePiece puts in front of a text
    offsets = [min(max(0, end - unwritten), len(prompt.text)) for end in ends[:-1]]
    return [0, *offsets] if prompt.has_added_bos else offsets
