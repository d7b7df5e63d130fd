"""Turns ids into text as they come, so that the pieces add up to what decoding all of them at once gives."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from tokenizers import Tokenizer

_REPLACEMENT = "\ufffd"
_LONGEST_WINDOW = 8  # ids, after text was given out


class Detokenizer:
    """Text of the ids pushed, as the continuation of a prompt: what decode(prompt + ids) adds to decode(prompt).

    A decoder looks at neighbours (a first word loses its space, bytes join to characters), so each push decodes a short
    window that begins where text was last given out. Text is held back while more ids could change it: behind an
    unfinished character, and within a run of byte tokens, which become text together or not at all.
    """

    __slots__ = ("_byte_ids", "_given", "_skipped", "_tokenizer", "_window")

    def __init__(
        self,
        tokenizer: Tokenizer,
        prompt_ids: Sequence[int] = (),
        skipped: AbstractSet[int] = frozenset(),
        byte_ids: AbstractSet[int] = frozenset(),
    ) -> None:
        """skipped: ids that leave no text (special tokens). byte_ids: Vocabulary's."""
        self._tokenizer = tokenizer
        self._skipped = skipped
        self._byte_ids = byte_ids
        self._window = self._tail(prompt_ids)
        self._given = self._decode(self._window)  # the part of the window's text that is out

    def push(self, token_id: int) -> str:
        """The text that is certain now; "" while there is none."""
        if token_id in self._skipped or self._tokenizer.id_to_token(token_id) is None:
            return ""
        self._window.append(token_id)
        text = self._decode(self._window)
        if token_id in self._byte_ids or text.endswith(_REPLACEMENT) or len(text) <= len(self._given):
            return ""
        return self._give(text)

    def flush(self) -> str:
        """The rest: unfinished characters as U+FFFD. Nothing is pushed afterwards."""
        return self._give(self._decode(self._window))

    def _give(self, text: str) -> str:
        piece = text[len(self._given) :]
        self._given = text
        if len(self._window) > _LONGEST_WINDOW:
            self._window = self._tail(self._window)
            self._given = self._decode(self._window)
        return piece

    def _tail(self, prompt_ids: Sequence[int]) -> list[int]:
        """The shortest end of the prompt that starts with a whole character and has text, or all of it."""
        tail: list[int] = []
        for token_id in reversed(prompt_ids):
            if token_id in self._skipped:
                continue
            tail.append(token_id)
            if token_id not in self._byte_ids and self._decode([token_id])[:1] not in ("", _REPLACEMENT):
                break
        return tail[::-1]

    def _decode(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode(ids, skip_special_tokens=False)
