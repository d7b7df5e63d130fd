"""Hidden rows on their way through the LM head."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hetspec.decoding.tree import TokenTree
from hetspec.decoding.walk import Row
from hetspec.hardware.work import ROWS_TOGETHER
from hetspec.rpc.messages import Rows
from hetspec.rpc.work import ShouldStop, Stopped

Logits = NDArray[np.float32]


class Head(Protocol):
    """Final norm and LM head. Logits of a row do not depend on the rows beside it."""

    @property
    def vocab_size(self) -> int: ...

    @property
    def hidden_size(self) -> int: ...

    def logits(self, hidden: Rows) -> Logits:
        """float32 [rows, hidden_size], before the final norm -> float32 [rows, vocab_size], the caller's to change."""
        ...


class Projection:
    """The head during one task: it stops between passes when told to. rows: how many were of use so far."""

    def __init__(self, head: Head, should_stop: ShouldStop) -> None:
        self._head = head
        self._should_stop = should_stop
        self.rows = 0

    def logits(self, hidden: Rows, used: int | None = None) -> Logits:
        """used: how many of the rows are known to be of use; None: all."""
        if self._should_stop():
            raise Stopped
        self.rows += len(hidden) if used is None else used
        return self._head.logits(hidden)


@dataclass(frozen=True, slots=True)
class Walked:
    """hidden: float32 [1 + nodes, hidden_size]. eager: all of them go through the head before the walk begins."""

    tree: TokenTree
    hidden: Rows
    eager: bool


class WalkedRows:
    """Logits of the rows that walks come to, each once.

    Up to ROWS_TOGETHER rows, a pass through the head takes what reading its weights takes. So where walks come to fewer
    rows, those below go along: of each node's first child, the likeliest to be come to next.
    """

    def __init__(self, walked: Sequence[Walked], projection: Projection) -> None:
        self._walked = walked
        self._projection = projection
        self._ready: dict[Row, Logits] = {}
        for index, one in enumerate(walked):
            if one.eager:
                logits = projection.logits(one.hidden)
                self._ready |= {(index, row): of_row for row, of_row in enumerate(logits)}

    def logits(self, rows: Sequence[Row]) -> Logits:
        """float32 [rows, vocab_size], the caller's to change. One of each walk at most."""
        if missing := [row for row in rows if row not in self._ready]:
            batch = self._with_those_below(missing)
            hidden = np.stack([self._walked[index].hidden[row] for index, row in batch])
            self._ready.update(zip(batch, self._projection.logits(hidden, used=0), strict=True))
        self._projection.rows += sum(not self._walked[index].eager for index, _ in rows)
        return np.stack([self._ready.pop(row) for row in rows])

    def _with_those_below(self, rows: Sequence[Row]) -> list[Row]:
        batch, level = list(rows), list(rows)
        while level and len(batch) < ROWS_TOGETHER:
            below = [below for row in level if (below := self._first_child(*row))]
            level = below[: ROWS_TOGETHER - len(batch)]
            batch += level
        return batch

    def _first_child(self, index: int, row: int) -> Row | None:
        parents, node = self._walked[index].tree.parents, row - 1
        return (index, 1 + parents.index(node)) if node in parents else None
