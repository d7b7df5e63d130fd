"""The state of a draft model that reads features: the target's hidden rows, which come a round after their tokens.

A row of its cache is a pair: a committed token, and the target's row of the token before (EAGLE, arXiv 2401.15077). The
first token of a session has no such row, so pairs begin with the second, or later where the rows of what stands before
are not to be had. They are contiguous: where the rows of tokens in between never come, the pairs behind begin anew.
What was computed of a tree read the draft's own outputs instead, and none of it is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from hetspec.drafting.model_state import Stretch
from hetspec.model.kv import KVCache
from hetspec.model.transformer import Rows


class FeatureState:
    """length: committed tokens. The last `len(unpaired)` of them have no pair yet, the pairs before those end in
    `waiting` ones that are not in the cache yet."""

    by_levels: ClassVar[bool] = True

    def __init__(self, cache: KVCache, hidden_size: int) -> None:
        self.cache = cache
        self.length = 0
        self.unpaired: list[int] = []
        self._tokens: list[int] = []  # of waiting pairs
        self._features = np.empty((0, hidden_size), np.float32)
        self._last: Rows | None = None  # [1, hidden], the feature of the last pair, where it is known

    @property
    def waiting(self) -> int:
        return len(self._tokens)

    @property
    def is_ready(self) -> bool:
        return not self.unpaired and self._last is not None

    def keep(self, nodes: Sequence[int], tokens: Sequence[int]) -> None:
        self.append(tokens)

    def append(self, tokens: Sequence[int]) -> None:
        self.unpaired.extend(tokens)
        self.length += len(tokens)

    def give(self, features: Rows) -> None:
        """Rows of pairs that are there already are ignored."""
        if not len(features):
            return
        missing = len(self.unpaired)
        if missing > len(features):
            self._begin_anew()
        fresh = min(missing, len(features))
        if fresh:
            self._tokens.extend(self.unpaired[-fresh:])
            self._features = np.concatenate((self._features, features[-fresh:]))
            self.unpaired = []
        self._last = features[-1:].copy()

    def remember(self, fed: Sequence[int | None]) -> None:
        """Nothing of a tree is kept."""

    def rewind(self, last: int) -> None:
        if not self._tokens:
            assert self._last is not None
            self.cache.length -= min(1, self.cache.length)
            self._tokens, self._features = [last], self._last

    def next(self, count: int) -> Stretch:
        return Stretch(self._tokens[:count], self._features[:count])

    def has_read(self, count: int) -> None:
        del self._tokens[:count]
        self._features = self._features[count:].copy()

    def fork(self, length: int) -> FeatureState:
        """Where the feature of its last token is not known any more, it drafts when it is given that one again."""
        dropped = self.length - length
        pairs = max(0, self.cache.length + self.waiting - max(0, dropped - len(self.unpaired)))
        held = min(pairs, self.cache.length)
        twin = FeatureState(self.cache.fork(held), self._features.shape[1])
        twin.length = length
        twin.unpaired = self.unpaired[: max(0, len(self.unpaired) - dropped)]
        twin._tokens, twin._features = self._tokens[: pairs - held], self._features[: pairs - held].copy()
        if twin._tokens:
            twin._last = twin._features[-1:].copy()
        elif dropped <= len(self.unpaired):
            twin._last = self._last
        return twin

    def release(self) -> None:
        self.cache.release()

    def _begin_anew(self) -> None:
        self.cache.release()
        self._tokens, self._features = [], self._features[:0]
