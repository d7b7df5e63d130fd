"""What a draft model keeps of a session: keys and values of committed tokens, and what it has still to read of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol, Self

from hetspec.model.kv import KVCache
from hetspec.model.transformer import Rows


@dataclass(frozen=True, slots=True)
class Stretch:
    """Committed tokens to be read. features: float32 [tokens, hidden], the target's row before each; None: not read."""

    tokens: Sequence[int]
    features: Rows | None = None


class ModelState(Protocol):
    """The caller tells what is committed (`keep`, `append`, then `give`) and what was drafted (`remember`); the draft
    model reads what is `waiting`, in order, and grows a tree below the last of it."""

    by_levels: ClassVar[bool]  # whether a drafted token can be fed only after its parent, whose output it reads

    @property
    def cache(self) -> KVCache: ...

    @property
    def waiting(self) -> int:
        """Committed tokens to be read before a draft."""

    @property
    def is_ready(self) -> bool:
        """Whether a draft can be made: all that it needs to read is here."""

    def keep(self, nodes: Sequence[int], tokens: Sequence[int]) -> None:
        """These nodes of the last draft, a path from its first level, are committed; the rest of it is dropped."""

    def append(self, tokens: Sequence[int]) -> None:
        """Committed tokens that no draft held."""

    def give(self, features: Rows) -> None:
        """float32 [rows, hidden]: the target's rows that stand before each of the last `rows` committed tokens."""

    def remember(self, fed: Sequence[int | None]) -> None:
        """The nodes of a finished draft, by their places among the fed ones (`Grown.places`)."""

    def rewind(self, last: int) -> None:
        """Makes `last`, the last committed token, wait again where nothing does: a draft starts from its row. What it
        leaves in the cache has the same bits as before."""

    def next(self, count: int) -> Stretch:
        """The first `count` of what waits."""

    def has_read(self, count: int) -> None:
        """They are in the cache."""

    def fork(self, length: int) -> Self:
        """A twin of the first `length` committed tokens. Raises CacheFullError."""

    def release(self) -> None: ...


@dataclass(slots=True)
class TokenState:
    """Of a draft model that reads tokens alone: what it computed of a tree is good where the tree is accepted.

    behind: committed tokens not in the cache yet. slots: of the last draft's nodes, where fed.
    """

    by_levels: ClassVar[bool] = False
    cache: KVCache
    behind: list[int] = field(default_factory=list)
    slots: list[int | None] = field(default_factory=list)

    @property
    def waiting(self) -> int:
        return len(self.behind)

    @property
    def is_ready(self) -> bool:
        return self.waiting + self.cache.length > 0

    def keep(self, nodes: Sequence[int], tokens: Sequence[int]) -> None:
        """Moves what is held of the accepted path into the committed part; the rest has to be fed again."""
        held = 0
        while held < len(nodes) and self.slots[nodes[held]] is not None:
            held += 1
        self.cache.keep([slot for node in nodes[:held] if (slot := self.slots[node]) is not None])
        self.behind.extend(tokens[held:])
        self.slots = []

    def append(self, tokens: Sequence[int]) -> None:
        self.behind.extend(tokens)

    def give(self, features: Rows) -> None:
        """It reads none."""

    def remember(self, fed: Sequence[int | None]) -> None:
        self.slots = [None if place is None else self.cache.length + place for place in fed]

    def rewind(self, last: int) -> None:
        if not self.behind:
            self.cache.length -= 1
            self.behind.append(last)

    def next(self, count: int) -> Stretch:
        return Stretch(self.behind[:count])

    def has_read(self, count: int) -> None:
        del self.behind[:count]

    def fork(self, length: int) -> TokenState:
        held = self.cache.length
        return TokenState(self.cache.fork(min(length, held)), self.behind[: max(0, length - held)])

    def release(self) -> None:
        self.cache.release()
