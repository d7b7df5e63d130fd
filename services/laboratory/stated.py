"""A synthetic draft: how often it is right is stated, and drawn from a counter-based generator, so that it repeats.

At depth d the confidence c of a proposal is drawn from [0, 1] with a density proportional to exp(k c), k such that its
mean is the acceptance stated for d. The candidate of rank r (0, 1, ...) has probability c (1 - c)^r, and is right that
often: its confidence is its chance. So the first candidate is right as often as stated, and the surer, the more often.
What is proposed below a wrong token looks the same, and is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, expm1, floor, log, log1p

import numpy as np

from hetspec.drafting.nodes import Proposal
from laboratory.errors import StudyError
from laboratory.proposals import WIDTH, Path
from laboratory.record import Answer, Record

_LEAST, _MOST = 0.01, 0.99  # acceptance that can be stated, and confidence


@dataclass(frozen=True, slots=True)
class Acceptance:
    """by_depth: how often the first candidate is right, given that all before it were; deeper ones are as the last."""

    by_depth: tuple[float, ...]
    seed: int = 0

    @classmethod
    def parse(cls, text: str) -> Acceptance:
        """ "0.7", or "0.8,0.75,0.7" by depth. Raises StudyError."""
        try:
            stated = tuple(float(part) for part in text.split(","))
        except ValueError as error:
            raise StudyError(f"--accept {text!r}, must be numbers with commas between them") from error
        for one in stated:
            if not _LEAST <= one <= _MOST:
                raise StudyError(f"--accept {text!r}: {one:g}, must be in [{_LEAST}, {_MOST}]")
        return cls(stated)

    def at(self, depth: int) -> float:
        """depth: from 1."""
        return self.by_depth[min(depth, len(self.by_depth)) - 1]

    def chain_length(self, depth: int) -> float:
        """Tokens a round that a chain of so many is expected to give: 1 + a1 + a1 a2 + ..."""
        tokens, reached = 1.0, 1.0
        for level in range(1, depth + 1):
            reached *= self.at(level)
            tokens += reached
        return tokens


class StatedProposals:
    def __init__(self, record: Record, acceptance: Acceptance) -> None:
        self._record = record
        self._acceptance = acceptance
        self._place = 0
        self._known: dict[tuple[int, Path], Proposal] = {}
        self._tilts: dict[float, float] = {}  # by acceptance

    def turn_to(self, place: int) -> None:
        if place != self._place:
            self._place, self._known = place, {}

    def propose(self, length: int, paths: Sequence[Path]) -> list[Proposal]:
        for path in paths:
            if (length, path) not in self._known:
                self._known[length, path] = self._proposal(length, path)
        return [self._known[length, path] for path in paths]

    def _proposal(self, length: int, path: Path) -> Proposal:
        depth, position = len(path) + 1, length + len(path)
        last = path[-1] if path else 0
        counter = [self._place, position, depth, last]
        confidence_draw, rank_draw = np.random.Generator(
            np.random.Philox(key=self._acceptance.seed, counter=counter)
        ).random(2)
        confidence = min(_MOST, max(_LEAST, tilted(confidence_draw, self._tilt(self._acceptance.at(depth)))))
        right = _right(self._answer, length, path)
        rank = floor(log1p(-rank_draw) / log1p(-confidence))  # geometric: r with chance c (1 - c)^r
        candidates = [
            (token, confidence * (1 - confidence) ** r) for r, token in enumerate(self._tokens(right, rank, last))
        ]
        return Proposal(candidates, -(log(confidence) + (1 - confidence) / confidence * log1p(-confidence)))

    @property
    def _answer(self) -> Answer:
        return self._record.answers[self._place]

    def _tokens(self, right: int | None, rank: int, last: int) -> list[int]:
        """Of each candidate. The wrong ones are whatever else the vocabulary has."""
        vocabulary = self._record.about.model.vocab_size
        first = last if right is None else right
        tokens = [(first + 1 + r) % vocabulary for r in range(WIDTH)]
        if right is not None and rank < WIDTH:
            tokens[rank] = right
        return tokens

    def _tilt(self, mean: float) -> float:
        if mean not in self._tilts:
            self._tilts[mean] = tilt_of(mean)
        return self._tilts[mean]


def _right(answer: Answer, length: int, path: Path) -> int | None:
    """The token that the target says behind the path; None where the path is wrong already, or the answer ends."""
    end = length + len(path)
    if end >= len(answer.ids) or answer.ids[length:end] != path:
        return None
    return answer.ids[end]


def tilted(uniform: float, tilt: float) -> float:
    """A draw from [0, 1] whose density is proportional to exp(tilt c), of a uniform one."""
    return uniform if abs(tilt) < 1e-9 else log1p(uniform * expm1(tilt)) / tilt


def tilt_of(mean: float) -> float:
    """Of the density whose mean is that: 1 / (1 - exp(-k)) - 1 / k, which grows with k."""
    low, high = -700.0, 700.0
    while high - low > 1e-9:
        k = (low + high) / 2
        below = (0.5 if abs(k) < 1e-6 else 1 / (1 - exp(-k)) - 1 / k) < mean
        low, high = (k, high) if below else (low, k)
    return (low + high) / 2
