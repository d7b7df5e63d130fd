"""What plain decoding makes of prompts, many of them side by side, and the target's rows of all of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from hetspec.decoding.sampling import NoiseKey, Sampling
from hetspec.decoding.tree import TokenTree
from hetspec.decoding.walk import Row, WalkSpec, walk
from hetspec.model.head import Head
from hetspec.model.kv import KVCache
from hetspec.model.transformer import Rows, Span, Transformer
from hetspec.training.corpus.choosing import TOP
from hetspec.training.corpus.said import Said
from hetspec.training.corpus.talk import ANSWERED, GIVEN
from hetspec.training.target import Target

AT_ONCE = 16  # prompts
STRETCH = 16  # tokens of a prompt that go into a pass
_PAGE_SLACK = 64


@dataclass(frozen=True, slots=True)
class Question:
    """A prompt and how to continue it: by at most `max_tokens`, at least 1."""

    prompt: tuple[int, ...]
    max_tokens: int
    sampling: Sampling = Sampling()
    noise: NoiseKey = NoiseKey(0)


Place = tuple[Question, int]
"""Whose token, and its absolute position."""


@dataclass(frozen=True, slots=True)
class Answer:
    """tokens: what followed the prompt. rows: float32 [prompt + tokens - 1, hidden], after all layers, of every token
    but the last."""

    question: Question
    tokens: tuple[int, ...]
    rows: Rows

    def said(self) -> Said:
        """The tokens that have a row, as a conversation in which the target was not asked for its best tokens."""
        given, count = len(self.question.prompt), len(self.rows)
        origins = np.full(count, ANSWERED, np.uint8)
        origins[:given] = GIVEN
        return Said(
            tokens=np.array([*self.question.prompt, *self.tokens][:count], np.uint32),
            origins=origins,
            hidden=self.rows,
            top_ids=np.zeros((count, TOP), np.int32),
            top_logprobs=np.full((count, TOP), -np.inf, np.float16),
            temperature=self.question.sampling.temperature,
        )


@dataclass(slots=True)
class _Text:
    question: Question
    cache: KVCache
    pending: list[int]
    tokens: list[int] = field(default_factory=list)
    rows: list[Rows] = field(default_factory=list)

    def place(self) -> Place:
        return self.question, len(self.question.prompt) + len(self.tokens)

    def answer(self) -> Answer:
        return Answer(self.question, tuple(self.tokens), np.concatenate(self.rows))


class Answerer:
    """A target that answers."""

    def __init__(self, model: Transformer, head: Head, *, missing: NDArray[np.intp], end_ids: frozenset[int]) -> None:
        """model: with room for AT_ONCE texts, and as many times STRETCH rows. missing: logits that stand for no
        token."""
        self._model = model
        self._head = head
        self._missing = missing
        self.end_ids = end_ids

    @classmethod
    def open(cls, target: Target, *, threads: int, max_context: int) -> Answerer:
        """max_context: tokens of a prompt with its answer, at most."""
        model = Transformer(
            target.pack, threads=threads, max_rows=AT_ONCE * STRETCH, max_context=max_context,
            kv_capacity_tokens=AT_ONCE * (max_context + _PAGE_SLACK),
        )  # fmt: skip
        missing = target.text.vocabulary.missing(target.checkpoint.config.vocab_size)
        end_ids = frozenset(target.text.spec.end_ids)
        return cls(model, Head(target.pack, threads=threads), missing=missing, end_ids=end_ids)

    def answer(self, questions: Sequence[Question]) -> list[Answer]:
        """At most AT_ONCE. An answer ends with an end id, at its `max_tokens`, or where the context is full; it is what
        plain decoding emits, whatever the others are."""
        assert len(questions) <= AT_ONCE
        texts = [_Text(one, self._model.new_cache(), list(one.prompt)) for one in questions]
        while going := [text for text in texts if not self._has_ended(text)]:
            self._advance(going)
        for text in texts:
            text.cache.release()
        return [text.answer() for text in texts]

    def following(self, rows: Sequence[Rows], places: Sequence[Place]) -> list[int]:
        """The token behind each of these rows, [hidden], where it stands."""
        specs = [WalkSpec(TokenTree(), asked.sampling, asked.noise, position, 1) for asked, position in places]

        def project(wanted: Sequence[Row]) -> NDArray[np.float32]:
            return self._head.logits(np.stack([rows[place] for place, _ in wanted]))

        return [steps.tokens[0] for steps in walk(specs, project, self._missing)]

    def close(self) -> None:
        self._model.close()
        self._head.close()

    def _has_ended(self, text: _Text) -> bool:
        if not text.tokens:
            return False
        is_full = text.cache.length >= self._model.max_context
        return text.tokens[-1] in self.end_ids or len(text.tokens) >= text.question.max_tokens or is_full

    def _advance(self, texts: Sequence[_Text]) -> None:
        """Feeds what waits, a stretch of each; those that have read it all are continued by a token."""
        stretches = [text.pending[:STRETCH] for text in texts]
        rows, _ = self._model.run([Span(text.cache, ids) for text, ids in zip(texts, stretches, strict=True)])
        ends = np.cumsum([len(ids) for ids in stretches]).tolist()
        for text, ids, end in zip(texts, stretches, ends, strict=True):
            text.rows.append(rows[end - len(ids) : end].copy())
            del text.pending[: len(ids)]
        read = [text for text in texts if not text.pending]
        tokens = self.following([text.rows[-1][-1] for text in read], [text.place() for text in read])
        for text, token in zip(read, tokens, strict=True):
            text.tokens.append(token)
            text.pending = [token]
