"""Prompt lookup: what followed the last few tokens, where they occurred before (n-grams of prompt and output)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

MAX_MATCH = 8  # tokens; a longer match says no more
RUN_MATCH = 2  # what follows a single token again is rarely worth a row of the target's pass
MAX_NGRAM = 4  # that is indexed; what is longer is compared
_OCCURRENCES = 8  # the latest ones kept of each n-gram


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
            for n in range(1, min(MAX_NGRAM, end) + 1):
                ends = self._ends.setdefault(tuple(self._ids[end - n :]), [])
                ends.append(end)
                del ends[:-_OCCURRENCES]

    def copy(self, length: int) -> NgramIndex:
        return NgramIndex(self._ids[:length])

    def runs(self, count: int, length: int, path: Sequence[int] = ()) -> list[tuple[list[int], int]]:
        """At most `count` different runs of at most `length` tokens that followed, each with the length of its match,
        which is RUN_MATCH at least. Longer matches come first, then later occurrences.

        path: tokens behind the committed ones."""
        found: list[tuple[list[int], int]] = []
        for end, matched in self._occurrences(path):
            run = self._ids[end : end + length]
            if matched >= RUN_MATCH and len(found) < count and all(run != known[: len(run)] for known, _ in found):
                found.append((run, matched))
        return found

    def followers(self, count: int, path: Sequence[int] = ()) -> dict[int, int]:
        """At most `count` tokens that followed, in the order of `runs`: the length of the match, one token at least."""
        found: dict[int, int] = {}
        for end, matched in self._occurrences(path):
            if len(found) == count:
                break
            found.setdefault(self._ids[end], matched)
        return found

    def _occurrences(self, path: Sequence[int]) -> Iterator[tuple[int, int]]:
        """Ends of what matches the last tokens and is followed by one; the length of the match."""
        tail = [*self._ids[-MAX_MATCH:], *path][-MAX_MATCH:]
        seen = {len(self._ids)}
        for n in range(min(MAX_NGRAM, len(tail)), 0, -1):
            ends = [end for end in reversed(self._ends.get(tuple(tail[-n:]), ())) if end not in seen]
            seen.update(ends)
            yield from sorted([(end, self._matched(end, tail, n)) for end in ends], key=lambda match: -match[1])

    def _matched(self, end: int, tail: Sequence[int], known: int) -> int:
        """known: tokens that are the same."""
        while known < min(len(tail), end) and self._ids[end - 1 - known] == tail[-1 - known]:
            known += 1
        return known
