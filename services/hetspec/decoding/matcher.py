"""Where outputs stand in their grammars, and what may follow along any path behind them.

What may follow is a function of the grammar and the tokens alone: a state that has read them one by one, here or in
another process, in one go or as a copy of another's, gives the same masks.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hetspec.decoding.constraint import DeadEnd, Grammar
from hetspec.decoding.grammar import Grammars, reason_of

if TYPE_CHECKING:
    from llguidance import LLMatcher

_FOLLOWED = 128  # outputs kept


class GrammarMatcher:
    """A grammar that has read an output (`hetspec.decoding.adjust.Matcher`). Of one item."""

    def __init__(self, state: LLMatcher, vocab_size: int) -> None:
        self._states: dict[tuple[int, ...], LLMatcher] = {(): state}
        self._vocab_size = vocab_size

    def allow(self, logits: NDArray[np.float32], path: Sequence[int]) -> None:
        """Sets to -inf, in place, every id that may not follow `path`. Raises DeadEnd.

        A draft's logits may have other padding than the grammar's vocabulary: padding never follows.
        """
        shared = min(len(logits), self._vocab_size)
        logits[:shared][~self.allowed(path)[:shared]] = -np.inf
        logits[shared:] = -np.inf

    def allowed(self, path: Sequence[int] = ()) -> NDArray[np.bool_]:
        """Which ids may follow, [vocab_size], at least one of them. Of a complete output: the end ids alone, where
        nothing else may follow. Raises as `allow`."""
        state = self._state(tuple(path))
        mask = state.compute_bitmask()
        if state.is_error():
            raise DeadEnd(_explained(state))
        bits = np.unpackbits(np.frombuffer(mask, np.uint8), bitorder="little", count=self._vocab_size)
        return bits.view(np.bool_)

    def follows(self, run: Sequence[int]) -> int:
        """How many tokens of `run`, from its beginning, may follow the output."""
        for length, token in enumerate(run):
            try:
                if not self.allowed(run[:length])[token]:
                    return length
            except DeadEnd:
                return length
        return len(run)

    def forced(self) -> list[int]:
        """The tokens that must follow the output, as far as each is the only one allowed."""
        return self._states[()].compute_ff_tokens()

    def _state(self, path: tuple[int, ...]) -> LLMatcher:
        """Each path has a state of its own, a copy of its parent's moved on by one token."""
        if (known := self._states.get(path)) is not None:
            return known
        state = self._state(path[:-1]).deep_copy()
        if not state.consume_token(path[-1]):
            raise DeadEnd(_explained(state))
        self._states[path] = state
        return state


class Matchers:
    """Follows outputs through their grammars. For one thread.

    What an output's session has read before is kept, and taken up where the output begins with it; else the whole
    output is read again. So nothing has to be told when a session goes elsewhere, comes back or ends.
    """

    def __init__(self, grammars: Grammars) -> None:
        self._grammars = grammars
        self._followed: OrderedDict[tuple[str, Grammar], tuple[tuple[int, ...], LLMatcher]] = OrderedDict()

    def at(self, session: str, grammar: Grammar, output: tuple[int, ...]) -> GrammarMatcher:
        """Raises GrammarError for a grammar of no use, ValueError for an output that it does not allow, DeadEnd."""
        read, state = self._followed.pop((session, grammar), ((), None))
        if state is None or output[: len(read)] != read:
            read, state = (), self._grammars.start(grammar)
        unread = list(output[len(read) :])
        if (allowed := state.validate_tokens(unread)) < len(unread):
            place = len(read) + allowed
            raise ValueError(f"past.output[{place}] = {output[place]}, which the grammar does not allow there")
        if not state.consume_tokens(unread):
            raise DeadEnd(_explained(state))
        self._followed[session, grammar] = (output, state)
        if len(self._followed) > _FOLLOWED:
            self._followed.popitem(last=False)
        return GrammarMatcher(state, self._grammars.vocab_size)


def _explained(state: LLMatcher) -> str:
    reason = reason_of(state.get_error())
    if reason == "NoExtensionBias":
        return "the grammar allows none of the model's tokens"
    return f"the grammar is too complex: {reason}"
