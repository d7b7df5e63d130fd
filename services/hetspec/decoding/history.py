"""Committed token ids with a running hash: the one truth about a session, and how two parts compare it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence

import numpy as np


class History:
    """Append-only token ids. `hash` is a function of the ids alone, however they were appended."""

    __slots__ = ("_hasher", "_ids")

    def __init__(self, ids: Iterable[int] = ()) -> None:
        self._ids: list[int] = []
        self._hasher = hashlib.blake2b(digest_size=8)
        self.extend(list(ids))

    def extend(self, ids: Sequence[int]) -> None:
        """Raises OverflowError, and appends nothing, where an id is no unsigned 32-bit number."""
        data = np.array(ids, dtype="<u4").tobytes()
        self._ids.extend(ids)
        self._hasher.update(data)

    @property
    def hash(self) -> int:
        """Unsigned 64-bit."""
        return int.from_bytes(self._hasher.digest(), "little")

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Iterator[int]:
        return iter(self._ids)

    def __getitem__(self, where: slice) -> list[int]:
        return self._ids[where]
