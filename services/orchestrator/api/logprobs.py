"""Log-probabilities in the shapes of the two endpoints."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Sequence
from typing import Any

from hetspec.text.vocabulary import Vocabulary
from orchestrator.engine.request import EmittedToken

_FLOOR = -9999.0  # what OpenAI writes for the logarithm of nothing: JSON has no infinity


class ChatLogprobs:
    """`choices[].logprobs` of a chat answer."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary

    def render(self, tokens: Iterable[EmittedToken]) -> dict[str, Any]:
        return {"content": [self._entry(token) for token in tokens], "refusal": None}

    def _entry(self, token: EmittedToken) -> dict[str, Any]:
        assert token.logprobs is not None, "logprobs were asked for"
        top = zip(token.logprobs.top_ids, token.logprobs.top_logprobs, strict=True)
        return {
            **self._token(token.id, token.logprobs.logprob),
            "top_logprobs": [self._token(id_, logprob) for id_, logprob in top],
        }

    def _token(self, id_: int, logprob: float) -> dict[str, Any]:
        return {
            "token": self._vocabulary.token_text(id_),
            "logprob": max(logprob, _FLOOR),
            "bytes": list(self._vocabulary.token_bytes(id_)),
        }


class CompletionLogprobs:
    """`choices[].logprobs` of a completion. Offsets, in characters, count on from one `render` to the next.

    A token that is no whole text, such as a part of a character, is written `bytes:\\xe2\\x80`, as OpenAI does. Of
    several best tokens that read the same, the best one stays.
    """

    def __init__(self, vocabulary: Vocabulary, prompt_offsets: Sequence[int] = (), begin: int = 0) -> None:
        """prompt_offsets: where each of the prompt's tokens begins, where they are told. begin: where the first emitted
        token does."""
        self._vocabulary = vocabulary
        self._prompt_offsets = list(prompt_offsets)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._offset_chars = begin

    def render(self, tokens: Sequence[EmittedToken], prompt: Sequence[EmittedToken] = ()) -> dict[str, Any]:
        """prompt: all of its tokens, or none."""
        offsets = self._prompt_offsets if prompt else []
        return {
            "tokens": [self._name(token.id) for token in (*prompt, *tokens)],
            "token_logprobs": [_logprob(token) for token in (*prompt, *tokens)],
            "top_logprobs": [self._top(token) for token in (*prompt, *tokens)],
            "text_offset": offsets + [self._advance(token.id) for token in tokens],
        }

    def _name(self, id_: int) -> str:
        data = self._vocabulary.token_bytes(id_)
        try:
            return data.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)

    def _top(self, token: EmittedToken) -> dict[str, float] | None:
        """The best tokens and, wherever it ranks, the chosen one. None: of a prompt's first token."""
        if token.logprobs is None:
            return None
        best = zip(token.logprobs.top_ids, token.logprobs.top_logprobs, strict=True)
        top: dict[str, float] = {}
        for id_, logprob in (*best, (token.id, token.logprobs.logprob)):  # best first
            top.setdefault(self._name(id_), max(logprob, _FLOOR))
        return top

    def _advance(self, id_: int) -> int:
        """Where the token begins; a character is counted with the token that completes it."""
        begin = self._offset_chars
        if id_ not in self._vocabulary.special:  # those leave no text
            self._offset_chars += len(self._decoder.decode(self._vocabulary.token_bytes(id_)))
        return begin


def _logprob(token: EmittedToken) -> float | None:
    return None if token.logprobs is None else max(token.logprobs.logprob, _FLOOR)
