"""Prompt lookup: what followed the last few tokens, where they occurred before (n-grams of prompt and output)."""

from __future__ import annotations

from collections.abc import Sequence

MIN_NGRAM, MAX_NGRAM = 2, 4  # what follows a single token again is rarely worth a row of the target's pass
_OCCURRENCES = 8  # the latest ones kept of each n-gram

# How often a continuation holds for one token more, by the length of the n-gram that found it: a prior.
CONFIDENCE = {2: 0.5, 3: 0.7, 4: 0.8}


class NgramIndex:
    """Where each n-gram of the committed tokens ends. Grows by one token at a time, in constant time."""

    def __init__(self, ids: Sequence[int] = ()) -> None:
        self._ids: list[int] = []
        self._ends: dict[tuple[int, ...], list[int]] = {}
        self.extend(ids)

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def last(self) -> int:
        """The last token; there must be one."""
        return self._ids[-1]

    def extend(self, ids: Sequence[int]) -> None:
        for token in ids:
            self._ids.append(token)
            end = len(self._ids)
            for n in range(MIN_NGRAM, min(MAX_NGRAM, end) + 1):
                ends = self._ends.setdefault(tuple(self._ids[end - n :]), [])
                ends.append(end)
                del ends[:-_OCCURRENCES]

    def copy(self, length: int) -> NgramIndex:
        return NgramIndex(self._ids[:length])

    def continuations(self, count: int, length: int, path: Sequence[int] = ()) -> list[tuple[list[int], float]]:
        """At most `count` different runs of at most `length` tokens that followed, with the confidence of each token.

        path: tokens behind the committed ones. Longer n-grams come first, then later occurrences.
        """
        found: list[tuple[list[int], float]] = []
        tail = [*self._ids[-MAX_NGRAM:], *path][-MAX_NGRAM:]
        for n in range(len(tail), MIN_NGRAM - 1, -1):
            for start in reversed(self._ends.get(tuple(tail[-n:]), ())):
                run = self._ids[start : start + length]
                if run and all(run != known[: len(run)] for known, _ in found):
                    found.append((run, CONFIDENCE[n]))
                if len(found) == count:
                    return found
        return found
