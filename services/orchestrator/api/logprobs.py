"""Log-probabilities in the shapes of the two endpoints."""

from __future__ import annotations

import codecs
from collections.abc import Iterable
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
    """`choices[].logprobs` of a completion. Offsets count on from one `render` to the next."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._offset_chars = 0

    def render(self, tokens: Iterable[EmittedToken]) -> dict[str, Any]:
        tokens = tuple(tokens)
        return {
            "tokens": [self._vocabulary.token_text(token.id) for token in tokens],
            "token_logprobs": [_logprob(token) for token in tokens],
            "top_logprobs": [self._top(token) for token in tokens],
            "text_offset": [self._advance(token.id) for token in tokens],
        }

    def _top(self, token: EmittedToken) -> dict[str, float]:
        """The best tokens and, wherever it ranks, the chosen one."""
        assert token.logprobs is not None, "logprobs were asked for"
        entries = [*zip(token.logprobs.top_ids, token.logprobs.top_logprobs, strict=True), (token.id, _logprob(token))]
        top: dict[str, float] = {}
        for id_, logprob in entries:  # best first: of ids that read the same, the best stays
            top.setdefault(self._vocabulary.token_text(id_), max(logprob, _FLOOR))
        return top

    def _advance(self, id_: int) -> int:
        """Where the token begins; a character is counted with the token that completes it."""
        begin = self._offset_chars
        if id_ not in self._vocabulary.special:  # those leave no text
            self._offset_chars += len(self._decoder.decode(self._vocabulary.token_bytes(id_)))
        return begin


def _logprob(token: EmittedToken) -> float:
    assert token.logprobs is not None, "logprobs were asked for"
    return max(token.logprobs.logprob, _FLOOR)
