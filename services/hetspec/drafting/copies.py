"""What prompt lookup says of a place, and how it joins with what a draft model says there.

Either the target copies, and its token is one that followed the last tokens where they stood before; or it does not,
and the draft model's chances q hold. With x1, x2, ... the tokens that followed, longest match first, and m1, m2, ...
how many tokens match,

    P(token) = sum of ck [token = xk] + (1 - sum of ck) q(token)
    c1 = COPIES[m1],  ck = (1 - c1 - ... - c(k-1)) COPIES[mk] / 2

q knows the noise (`candidates`), ck need not: what is copied is chosen whatever the noise. COPIES lies between the
likeliest tables for what the packaged model chose at 32,000 places of greedy answers and at 37,000 of answers at
temperatures 0.5 to 1, which differ from it by 0.11 at most. Neither how often lookup was right before in the same text
nor the noise of x1 adds anything worth telling.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hetspec.drafting.lookup import MAX_MATCH, NgramIndex
from hetspec.drafting.nodes import Candidate, Guess
from hetspec.v1.drafter_pb2 import DRAFT_SOURCE_LOOKUP, DRAFT_SOURCE_MODEL

FOLLOWERS = 3  # x1 to x3
COPIES = (0.0, 0.11, 0.34, 0.41, 0.51, 0.58, 0.63, 0.74, 0.77)  # by the length of the match
RIGHT = (0.0, 0.21, 0.53, 0.58, 0.63, 0.71, 0.74, 0.81, 0.90)  # how often x1 is the target's token, whoever says it


class Copies:
    """Of a text. allowed: how many tokens of a run behind it may follow."""

    def __init__(self, index: NgramIndex | None = None, allowed: Callable[[Sequence[int]], int] = len) -> None:
        """index None: nothing is looked up."""
        self._index = index
        self._allowed = allowed

    def runs(self, count: int, length: int, path: Sequence[int] = ()) -> list[list[Candidate]]:
        """What followed elsewhere what ends in the path: at most `count` runs of at most `length` tokens, each token
        with its chance where no draft model is asked."""
        if self._index is None:
            return []
        runs = self._index.runs(count, length, path)
        return [
            [(token, RIGHT[min(matched + i, MAX_MATCH)]) for i, token in enumerate(self._follows(path, run))]
            for run, matched in runs
        ]

    def join(self, candidates: Sequence[Candidate], path: Sequence[int]) -> list[Guess]:
        """With a draft model's behind the path: best first. A guess's source is the one that has the larger share."""
        copied, rest = self._shares(path)
        own = {token: rest * probability for token, probability in candidates}
        guesses = [_guess(token, copied.get(token, 0.0), own.get(token, 0.0)) for token in own | copied]
        return sorted(guesses, key=lambda guess: -guess.probability)

    def _shares(self, path: Sequence[int]) -> tuple[dict[int, float], float]:
        """c by token, and what is left."""
        shares: dict[int, float] = {}
        rest = 1.0
        for token, matched in self._index.followers(FOLLOWERS, path).items() if self._index is not None else ():
            if self._follows(path, [token]):
                shares[token] = rest * COPIES[matched] / (2 if shares else 1)
                rest -= shares[token]
        return shares, rest

    def _follows(self, path: Sequence[int], run: Sequence[int]) -> Sequence[int]:
        return run[: max(0, self._allowed([*path, *run]) - len(path))]


def _guess(token: int, copied: float, own: float) -> Guess:
    return Guess(token, copied + own, DRAFT_SOURCE_LOOKUP if copied > own else DRAFT_SOURCE_MODEL)
