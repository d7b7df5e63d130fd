"""Conversations about to begin: those the target leads with itself, those that answer given prompts, given texts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hetspec.text.tokenizer import TextModel
from hetspec.training.corpus.openings import draw_opening
from hetspec.training.corpus.talk import READ, Frame, Talk

_TEMPERATURES = (0.0, 0.0, 0.0, 0.5, 0.8, 1.0)  # of answers, equally often: most of what is served is greedy
_ANSWER_TOKENS = (96, 193)


class Talks:
    """Makes them. A conversation is a function of the seed, its kind and its number."""

    def __init__(self, text: TextModel, seed: int) -> None:
        self._text = text
        self._frame = Frame.of(text)
        self._seed = seed
        self._end_ids = frozenset(text.spec.end_ids)

    def own(self, number: int) -> Talk:
        """The target writes the user's turn, too."""
        rng = np.random.default_rng([self._seed, 0, number])
        opening = draw_opening(rng)
        talk = self._begin(rng)
        talk.opening, talk.tail = opening, self._frame.tail
        talk.then = tuple(self._text.encode(opening.then)) if opening.then else ()
        talk.give([*self._frame.head, *(self._text.encode(opening.text) if opening.text else ())])
        talk.is_answering = not self._frame.tail
        return talk

    def answer(self, number: int, prompt: Sequence[int]) -> Talk:
        """prompt: ids up to where the answer begins."""
        talk = self._begin(np.random.default_rng([self._seed, 1, number]))
        talk.give(prompt)
        talk.is_answering = True
        return talk

    def read(self, number: int, ids: Sequence[int]) -> Talk:
        talk = self._begin(np.random.default_rng([self._seed, 2, number]))
        talk.give(ids, READ)
        return talk

    def _begin(self, rng: np.random.Generator) -> Talk:
        temperature = _TEMPERATURES[int(rng.integers(len(_TEMPERATURES)))]
        return Talk(rng, temperature, int(rng.integers(*_ANSWER_TOKENS)), self._end_ids)
