"""One conversation with a target: what it is given, what it draws, and where it ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from hetspec.text.chat_template import ChatTemplate
from hetspec.text.tokenizer import TextModel
from hetspec.training.corpus.openings import Opening
from hetspec.training.errors import TrainingError

GIVEN, ASKED, ANSWERED, READ = range(4)
"""How a token came about: given, drawn as part of the user's turn, drawn as part of the answer, read as plain text."""

_MARK = "\N{OBJECT REPLACEMENT CHARACTER}"  # no template trims it
_ASKED_TOKENS = 64  # of a question
_ASKING_TEMPERATURE = 0.8


@dataclass(frozen=True, slots=True)
class Frame:
    """What stands before and after a user's turn; a target without a chat template has neither, and no user."""

    head: tuple[int, ...]
    tail: tuple[int, ...]

    @classmethod
    def of(cls, text: TextModel) -> Frame:
        """Raises TrainingError where the template does not show a user's turn as it is."""
        if not text.spec.chat_template:
            return cls(tuple(text.encode_prompt("")), ())
        template = ChatTemplate(text.spec.chat_template, text.spec.special_tokens)
        head, mark, tail = template.render([{"role": "user", "content": _MARK}]).partition(_MARK)
        if not mark or _MARK in tail:
            raise TrainingError("the chat template does not show a user's message once, as it is")
        return cls(tuple(text.encode_prompt(head)), tuple(text.encode(tail)))


@dataclass(slots=True)
class Talk:
    """A conversation in progress. `pending` tokens are to be fed before the next one is drawn.

    rng: of this conversation alone, so that it goes the same way whatever else is going on. temperature: of the answer.
    answer_tokens: at most so many. opening, then (its ids), tail: of a user's turn that the target writes itself.
    """

    rng: np.random.Generator
    temperature: float
    answer_tokens: int
    end_ids: frozenset[int]
    opening: Opening = Opening()
    then: tuple[int, ...] = ()
    tail: tuple[int, ...] = ()
    tokens: list[int] = field(default_factory=list)
    origins: list[int] = field(default_factory=list)
    pending: list[int] = field(default_factory=list)
    is_answering: bool = False
    done: bool = False
    drawn: int = 0  # in this part of the turn

    def give(self, ids: Sequence[int], origin: int = GIVEN) -> None:
        self.tokens += ids
        self.origins += [origin] * len(ids)
        self.pending += ids

    @property
    def is_read(self) -> bool:
        """Plain text: nothing is drawn, and what the target thinks of every position is kept."""
        return self.origins[0] == READ

    @property
    def draw_temperature(self) -> float:
        return self.temperature if self.is_answering else _ASKING_TEMPERATURE

    def draw(self, token: int) -> None:
        """The token that follows all that was fed."""
        self.drawn += 1
        if self.is_answering:
            self.give([token], ANSWERED)
            self.done = token in self.end_ids or self.drawn >= self.answer_tokens
            return
        ended = token in self.end_ids
        if not ended:
            self.give([token], ASKED)
        if ended or self.drawn >= (self.opening.passage_tokens or _ASKED_TOKENS):
            self._end_part()

    def _end_part(self) -> None:
        """The passage is written: ask about it. The question is asked: answer it."""
        self.drawn = 0
        if self.opening.passage_tokens and self.then:
            self.give(self.then)
            complete = self.opening.then.rstrip().endswith((".", "?", "!"))
            self.opening = Opening()
            if not complete:
                return
        self.give(self.tail)
        self.is_answering = True
