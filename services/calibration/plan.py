"""Which tasks are measured. They take turns as in a decoding round (draft, pass, walk), so that each finds the
processor's caches as it would find them there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle

from calibration.draft_probe import DraftShape

READ_CHUNK = 256  # rows that the context is read by
_FEW_ROWS = (1, 2, 3, 4, 5, 6, 7, 8)
_MANY_ROWS = (12, 16, 24, 32, 48, 65)  # the last: a tree of 64 nodes
_CHUNKS = (65, 128, 512)
_STEP_ROWS = (1, 2, 4, 8, 16, 32, 64)
_READ_ROWS = (1, 2, 4, 8)
_LONG_READS = (65, 257, 513)  # of which the last token is read by itself
_STEPS = 3
_HEAD_ROWS = (1, 2, 4, 8, 16, 32, 65)
_FEW_TIMES, _MANY_TIMES = 5, 2
OFTEN = 3  # times that tell whether tasks of one shape take equally long


@dataclass(frozen=True, slots=True)
class Tree:
    """level: which of the plan's contexts it hangs below."""

    level: int
    rows: int


@dataclass(frozen=True, slots=True)
class Chunk:
    context: int
    rows: int


@dataclass(frozen=True, slots=True)
class Round:
    """walk: rows; as a path, one after another, where `lazy`."""

    target: Tree | Chunk
    draft: DraftShape
    draft_level: int
    walk: int
    lazy: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """contexts: tokens that trees and drafts hang below."""

    max_context: int
    max_rows: int

    @property
    def contexts(self) -> tuple[int, ...]:
        return 16, self.max_context // 2, self.max_context

    def rounds(self) -> list[Round]:
        """In the order of their measurement: should there be no time for all, the first ones tell the most."""
        drafts, walks = cycle(_drafts()), cycle(_walks())
        return [Round(target, *next(drafts), *next(walks)) for target in self._targets()]

    @property
    def least_rounds(self) -> int:
        """So many of them, from the first on, hold every shape, and trees of few rows often."""
        return len(set(self._targets())) + (OFTEN - 1) * len(_FEW_ROWS) * len(self.contexts)

    def _targets(self) -> Iterator[Tree | Chunk]:
        deep = range(len(self.contexts))
        yield from (Tree(level, rows) for rows in _MANY_ROWS for level in deep)
        for rows in (rows for rows in _CHUNKS if rows <= self.max_rows):
            yield from (Chunk(context, rows) for context in {0, max(0, self.max_context - rows)})
        for _ in range(_FEW_TIMES):
            yield from (Tree(level, rows) for rows in _FEW_ROWS for level in deep)
        for _ in range(_MANY_TIMES):
            yield from (Tree(level, rows) for rows in _MANY_ROWS for level in deep)


def _drafts() -> list[tuple[DraftShape, int]]:
    shapes = [DraftShape(rows) for rows in (*_READ_ROWS, *_LONG_READS)]
    shapes += [DraftShape(2, rows, _STEPS) for rows in _STEP_ROWS]
    return [(shape, level) for shape in shapes for level in (0, 2)]


def _walks() -> list[tuple[int, bool]]:
    return [one for rows in _HEAD_ROWS for one in ((1, True), (rows, False))]
