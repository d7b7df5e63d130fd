"""One conversation of a target with itself: what it is given, what it draws, and where it ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hetspec.text.tokenizer import TextModel
from hetspec.training.prompts import Opening

GIVEN, ASKED, ANSWERED = 0, 1, 2
"""How a token came about: given, drawn as part of the user's turn, drawn as part of the answer."""

_MARK = "\N{INFORMATION SEPARATOR ONE}"
_ASKED_TOKENS = 64  # of a question
_ASKING_TEMPERATURE = 0.8


@dataclass(frozen=True, slots=True)
class Frame:
    """What stands before and after a user's turn; a target without a chat template has neither, and no user."""

    head: tuple[int, ...]
    tail: tuple[int, ...]

    @classmethod
    def of(cls, text: TextModel) -> Frame:
        if not text.spec.chat_template:
            return cls(tuple(text.encode_prompt("")), ())
        around = text.render_chat([{"role": "user", "content": _MARK}]).partition(_MARK)
        return cls(tuple(text.encode_prompt(around[0])), tuple(text.encode(around[2])))


@dataclass(slots=True)
class Talk:
    """A conversation in progress. `pending` tokens are to be fed before the next one is drawn."""

    frame: Frame
    opening: Opening
    then: tuple[int, ...]  # ids of `opening.then`
    temperature: float  # of the answer
    answer_tokens: int
    end_ids: frozenset[int]
    tokens: list[int] = field(default_factory=list)
    origins: list[int] = field(default_factory=list)
    pending: list[int] = field(default_factory=list)
    is_answering: bool = False
    drawn: int = 0  # in this part of the turn
    done: bool = False

    def give(self, ids: Sequence[int]) -> None:
        self.tokens += ids
        self.origins += [GIVEN] * len(ids)
        self.pending += ids

    @property
    def draw_temperature(self) -> float:
        return self.temperature if self.is_answering else _ASKING_TEMPERATURE

    def draw(self, token: int) -> None:
        """The token that follows all that was fed."""
        self.drawn += 1
        if self.is_answering:
            self._take(token, ANSWERED)
            self.done = token in self.end_ids or self.drawn >= self.answer_tokens
            return
        ended = token in self.end_ids
        if not ended:
            self._take(token, ASKED)
        if ended or self.drawn >= (self.opening.passage_tokens or _ASKED_TOKENS):
            self._end_part()

    def _take(self, token: int, origin: int) -> None:
        self.tokens.append(token)
        self.origins.append(origin)
        self.pending.append(token)

    def _end_part(self) -> None:
        """The passage is written: ask about it. The question is asked: answer it."""
        self.drawn = 0
        if self.opening.passage_tokens and self.then:
            self.give(self.then)
            complete = self.opening.then.rstrip().endswith((".", "?", "!"))
            self.opening = Opening()
            if not complete:
                return
        self.give(self.frame.tail)
        self.is_answering = True
