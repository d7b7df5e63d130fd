"""Sessions that others may begin from, and which of them has the longest common beginning."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.uint32]


@dataclass(eq=False, slots=True)
class Source:
    """ids: what the session has read, or is about to read. committed: how many of them its unit has."""

    session: str
    ids: Ids
    committed: int = 0
    forks: int = 0  # asked of the unit, and not answered yet
    used: float = 0.0  # when last, in the event loop's time


class Fork(NamedTuple):
    """A session's beginning: the first `length` tokens of `source`."""

    source: Source
    length: int


class Found(NamedTuple):
    fork: Fork
    is_there: bool  # or is still being read


def common_prefix(a: Ids, b: Ids) -> int:
    """How many tokens both begin with."""
    shorter = min(len(a), len(b))
    differs = a[:shorter] != b[:shorter]
    return int(differs.argmax()) if differs.any() else shorter


def find(sources: Iterable[Source], ids: Ids, least_tokens: int) -> Found | None:
    """The longest beginning of `ids` to be had, of at least `least_tokens`.

    One that is still being read must be longer by as many than what is there already: it has to be waited for.
    """
    there = coming = Fork(Source("", ids), 0)
    for source in sources:
        common = common_prefix(source.ids, ids)
        there = max(there, Fork(source, min(common, source.committed)), key=_length)
        coming = max(coming, Fork(source, common), key=_length)
    if coming.length >= there.length + least_tokens:
        return Found(coming, is_there=False)
    return Found(there, is_there=True) if there.length >= least_tokens else None


def _length(fork: Fork) -> int:
    return fork.length
