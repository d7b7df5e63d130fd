"""What a request changes of the logits of a position, before temperature, filters and noise.

In this order: repetition penalty (of every id in prompt and output: a logit above 0 is divided by it, else multiplied),
frequency penalty times the id's count and presence penalty (of the output only, subtracted), bias (added), constraint
(-inf). The output at a position is `past.output` and then the path: tokens chosen or drafted behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hetspec.decoding.choose import Logits
from hetspec.decoding.constraint import Constraint, Past
from hetspec.decoding.sampling import Sampling

Ids = NDArray[np.intp]


class Matcher(Protocol):
    """A grammar that has read `past.output`."""

    def allow(self, logits: Logits, path: Sequence[int]) -> None:
        """Sets to -inf, in place, every id that may not follow `path`. Paths of one matcher may come in any order.

        Raises DeadEnd where nothing may.
        """
        ...


class Adjuster:
    """Of one item: adjusts the logits of any position along any path. Every id must lie within the logits."""

    __slots__ = ("_bias", "_bias_ids", "_constraint", "_matcher", "_output", "_prompt", "_sampling", "_withheld")

    def __init__(self, sampling: Sampling, constraint: Constraint, past: Past, matcher: Matcher | None = None) -> None:
        """matcher: of `constraint.grammar`, where there is one."""
        if (matcher is None) != (constraint.grammar is None):
            raise ValueError("constraint.grammar: needs a matcher, and a matcher needs it")
        self._sampling = sampling
        self._constraint = constraint
        self._matcher = matcher
        self._prompt = _ids(past.prompt)
        self._output = _ids(past.output)
        self._withheld = _ids(constraint.withheld)
        self._bias_ids = _ids([token for token, _ in sampling.bias])
        self._bias = np.array([bias for _, bias in sampling.bias], np.float64)

    def changes(self, position: int) -> bool:
        """Whether `adjust` would do anything there."""
        s = self._sampling
        return s.penalises or bool(s.bias) or self._withholds(position) or self._matcher is not None

    def adjust(self, logits: Logits, path: Sequence[int], position: int) -> None:
        """In place. position: absolute, of the token to choose. Raises DeadEnd where the grammar leaves none."""
        if self._sampling.penalises:
            self._penalise(logits, path)
        if self._sampling.bias:
            logits[self._bias_ids] = logits[self._bias_ids] + self._bias
        if self._matcher is not None:
            self._matcher.allow(logits, path)
        if self._withholds(position):
            self._withhold(logits)

    def _penalise(self, logits: Logits, path: Sequence[int]) -> None:
        """The penalties add up in float64: a logit is rounded once."""
        s = self._sampling
        emitted, counts = np.unique(np.concatenate((self._output, _ids(path))), return_counts=True)
        ids = np.union1d(self._prompt, emitted)
        penalised = logits[ids].astype(np.float64)
        if s.repetition_penalty != 1:
            penalised = np.where(penalised > 0, penalised / s.repetition_penalty, penalised * s.repetition_penalty)
        penalised[np.searchsorted(ids, emitted)] -= s.frequency_penalty * counts + s.presence_penalty
        logits[ids] = penalised

    def _withhold(self, logits: Logits) -> None:
        """Where the grammar allows nothing else, withheld ids may come: a complete output ends, however short it is."""
        kept = logits[self._withheld]
        logits[self._withheld] = -np.inf
        if self._matcher is not None and logits.max() == -np.inf:
            logits[self._withheld] = kept

    def _withholds(self, position: int) -> bool:
        return len(self._withheld) > 0 and position < self._constraint.withheld_before


def _ids(tokens: Sequence[int]) -> Ids:
    return np.array(tokens, np.intp)
