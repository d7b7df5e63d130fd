"""Lets a target talk, many conversations at once through the kernels that serve it, and keeps what it said.

One pass advances every conversation by a token, so a token costs a fraction of a plain decoding step's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from hetspec.model.head import Head
from hetspec.model.kv import KVCache
from hetspec.model.transformer import Span, Transformer
from hetspec.training.corpus.choosing import TOP, Choices
from hetspec.training.corpus.said import Said
from hetspec.training.corpus.talk import Talk
from hetspec.training.target import Target

MAX_TOKENS = 640  # of a conversation that is learned from
_STRETCH = 16  # given tokens of a conversation that go into a pass
_PAGE_SLACK = 64


class _Speaking:
    """A conversation and the rows it has come to."""

    def __init__(self, place: int, talk: Talk, cache: KVCache) -> None:
        self.place = place
        self.talk = talk
        self.cache = cache
        self.hidden: list[NDArray[np.float32]] = []
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
    """at_once: conversations side by side. What one comes to does not depend on the others."""

    def __init__(self, target: Target, *, threads: int = 1, at_once: int = 48, max_tokens: int = MAX_TOKENS) -> None:
        config = target.checkpoint.config
        self.max_tokens = min(max_tokens, config.max_context)
        self._at_once = at_once
        self._model = Transformer(
            target.pack, threads=threads, max_rows=at_once * _STRETCH, max_context=self.max_tokens,
            kv_capacity_tokens=at_once * (self.max_tokens + _PAGE_SLACK),
        )  # fmt: skip
        self._head = Head(target.pack, threads=threads)
        self._missing = target.text.vocabulary.missing(config.vocab_size)

    def hear(self, talks: Iterable[Talk], on_rows: Callable[[int], None] = lambda rows: None) -> list[Said]:
        """In the order of `talks`, none of which may begin with more than max_tokens. on_rows: told of every pass."""
        ended = sorted(self._hear(talks, on_rows), key=lambda one: one.place)
        return [one.said() for one in ended]

    def close(self) -> None:
        self._model.close()
        self._head.close()

    def _hear(self, talks: Iterable[Talk], on_rows: Callable[[int], None]) -> Iterator[_Speaking]:
        """In order of their ends."""
        waiting = (_Speaking(place, talk, self._model.new_cache()) for place, talk in enumerate(talks))
        speaking = list(islice(waiting, self._at_once))
        while speaking:
            on_rows(self._advance(speaking))
            for one in [one for one in speaking if self._has_ended(one)]:
                one.cache.release()
                speaking.remove(one)
                speaking += islice(waiting, 1)
                yield one

    def _has_ended(self, one: _Speaking) -> bool:
        talk = one.talk
        is_full = one.cache.length + len(talk.pending) >= self.max_tokens and not talk.is_read
        return talk.done or is_full or (talk.is_read and not talk.pending)

    def _advance(self, speaking: Sequence[_Speaking]) -> int:
        """Feeds what waits, a stretch of each conversation; of those that have heard it all, draws the next token."""
        fed = [one.talk.pending[:_STRETCH] for one in speaking]
        rows, _ = self._model.run([Span(one.cache, tokens) for one, tokens in zip(speaking, fed, strict=True)])
        ends = np.cumsum([len(tokens) for tokens in fed])
        asking: list[_Speaking] = []
        for one, tokens, end in zip(speaking, fed, ends.tolist(), strict=True):
            own = rows[end - len(tokens) : end]
            one.hidden.append(own)
            del one.talk.pending[: len(tokens)]
            if one.talk.is_read:
                self._read(one, own)
            elif not one.talk.pending:
                asking.append(one)
        if asking:
            self._draw(asking)
        return len(rows)

    def _draw(self, speaking: Sequence[_Speaking]) -> None:
        temperatures = np.array([one.talk.draw_temperature for one in speaking])
        uniform = np.array([one.talk.rng.random() for one in speaking])
        choices = Choices(self._logits(np.stack([one.hidden[-1][-1] for one in speaking])), temperatures, uniform)
        for place, one in enumerate(speaking):
            one.tops.append((one.cache.length - 1, choices.top_ids[place], choices.top_logprobs[place]))
            one.talk.draw(int(choices.tokens[place]))

    def _read(self, one: _Speaking, rows: NDArray[np.float32]) -> None:
        choices = Choices(self._logits(rows), np.zeros(len(rows)), np.zeros(len(rows)))
        first = one.cache.length - len(rows)
        one.tops += zip(range(first, one.cache.length), choices.top_ids, choices.top_logprobs, strict=True)

    def _logits(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        logits = self._head.logits(rows)
        logits[:, self._missing] = -np.inf
        return logits
