"""Lets a target talk, many conversations at once through the kernels that serve it, and keeps what it said.

One pass advances every conversation by a token, so a token costs a fraction of a plain decoding step's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hetspec.model.head import Head
from hetspec.model.kv import KVCache
from hetspec.model.residency import WeightReader
from hetspec.model.transformer import Span, Transformer
from hetspec.text.tokenizer import TextModel
from hetspec.training.choosing import TOP, Choices
from hetspec.training.prompts import openings
from hetspec.training.talk import Frame, Talk

MAX_TOKENS = 640  # of a conversation
_STRETCH = 16  # given tokens of a conversation that go into a pass
_TEMPERATURES = (0.0, 0.0, 0.0, 0.5, 0.8, 1.0)  # of answers, equally often


@dataclass(frozen=True, slots=True)
class Said:
    """A conversation with what the target thought of it.

    tokens: uint32 [n]. origins: uint8 [n] (talk.GIVEN, ...). hidden: float16 [n, hidden_size], before the final norm.
    top_ids, top_logprobs: of the token that follows row i, [n, TOP]; logprob -inf where nothing was drawn there.
    """

    tokens: NDArray[np.uint32]
    origins: NDArray[np.uint8]
    hidden: NDArray[np.float16]
    top_ids: NDArray[np.int32]
    top_logprobs: NDArray[np.float16]
    temperature: float

    def __len__(self) -> int:
        return len(self.tokens)


class _Speaking:
    """A conversation and the rows it has come to."""

    def __init__(self, talk: Talk, cache: KVCache) -> None:
        self.talk = talk
        self.cache = cache
        self.hidden: list[NDArray[np.float16]] = []
        self.tops: list[tuple[int, NDArray[np.int32], NDArray[np.float16]]] = []  # row, ids, logprobs

    def said(self) -> Said:
        hidden = np.concatenate(self.hidden)
        rows = len(hidden)
        top_ids = np.zeros((rows, TOP), np.int32)
        top_logprobs = np.full((rows, TOP), -np.inf, np.float16)
        for row, ids, logprobs in self.tops:
            top_ids[row], top_logprobs[row] = ids, logprobs
        tokens, origins = np.array(self.talk.tokens[:rows], np.uint32), np.array(self.talk.origins[:rows], np.uint8)
        return Said(tokens, origins, hidden, top_ids, top_logprobs, self.talk.temperature)


class Generator:
    """at_once: conversations side by side. The same seed gives the same conversations, in the same order."""

    def __init__(self, reader: WeightReader, text: TextModel, *, threads: int, seed: int, at_once: int = 48) -> None:
        self._text = text
        self._frame = Frame.of(text)
        self._at_once = at_once
        self._openings = openings(seed)
        self._rng = np.random.default_rng([seed, 1])
        context = min(MAX_TOKENS, reader.layout.config.max_context)
        self._model = Transformer(
            reader, threads=threads, max_rows=at_once * _STRETCH, max_context=context,
            kv_capacity_tokens=(at_once + 1) * (MAX_TOKENS + 64),
        )  # fmt: skip
        self._head = Head(reader, threads=threads)
        self._missing = text.vocabulary.missing(reader.layout.config.vocab_size)

    def conversations(self) -> Iterator[Said]:
        """Endless, in order of their ends."""
        speaking = [self._begin() for _ in range(self._at_once)]
        while True:
            self._advance(speaking)
            for place, one in enumerate(speaking):
                if one.talk.done or one.cache.length + len(one.talk.pending) >= self._model.max_context:
                    yield one.said()
                    one.cache.release()
                    speaking[place] = self._begin()

    def close(self) -> None:
        self._model.close()
        self._head.close()

    def _begin(self) -> _Speaking:
        opening = next(self._openings)
        talk = Talk(
            self._frame,
            opening,
            tuple(self._text.encode(opening.then)) if opening.then else (),
            temperature=_TEMPERATURES[int(self._rng.integers(len(_TEMPERATURES)))],
            answer_tokens=int(self._rng.integers(96, 193)),
            end_ids=frozenset(self._text.spec.end_ids),
        )
        talk.give([*self._frame.head, *(self._text.encode(opening.text) if opening.text else ())])
        talk.is_answering = not self._frame.tail
        return _Speaking(talk, self._model.new_cache())

    def _advance(self, speaking: Sequence[_Speaking]) -> None:
        """Feeds what waits, a stretch of each conversation; of those that have heard it all, draws the next token."""
        fed = [one.talk.pending[:_STRETCH] for one in speaking]
        rows, _ = self._model.run([Span(one.cache, tokens) for one, tokens in zip(speaking, fed, strict=True)])
        ends = np.cumsum([len(tokens) for tokens in fed])
        for one, tokens, end in zip(speaking, fed, ends, strict=True):
            one.hidden.append(rows[end - len(tokens) : end].astype(np.float16))
            del one.talk.pending[: len(tokens)]
        drawing = [place for place, one in enumerate(speaking) if not one.talk.pending]
        if drawing:
            self._draw([speaking[place] for place in drawing], rows[ends[drawing] - 1])

    def _draw(self, speaking: Sequence[_Speaking], rows: NDArray[np.float32]) -> None:
        logits = self._head.logits(rows)
        logits[:, self._missing] = -np.inf
        temperatures = np.array([one.talk.draw_temperature for one in speaking])
        choices = Choices(logits, temperatures, self._rng.random(len(speaking)))
        for place, one in enumerate(speaking):
            one.tops.append((one.cache.length - 1, choices.top_ids[place], choices.top_logprobs[place]))
            one.talk.draw(int(choices.tokens[place]))
