"""A session's place in a unit that holds state for it, and what the unit knows of the session's tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

from hetspec.decoding.history import History
from hetspec.rpc.messages import ErrorCode, SessionUpdate, UnitError
from orchestrator.units.prefix_source import Fork, Ids
from orchestrator.units.replica import Replica

Item = TypeVar("Item")
Result = TypeVar("Result")


class Mark(NamedTuple):
    """A place in the history: how many tokens lie before it, and their hash."""

    length: int
    hash: int


EMPTY = Mark(0, History().hash)


def mark_at(history: History, length: int) -> Mark:
    return Mark(length, History(history[:length]).hash)


class Seat(Generic[Item, Result]):
    """A session's place in a unit that holds state for it.

    `known` is what the unit has committed once it applies `commit`, the nodes accepted of the tree it saw last. With a
    `fork`, the unit is still to be told to begin from it; with `goes_back`, to go back to what is known.
    """

    __slots__ = ("commit", "epoch", "fork", "goes_back", "known", "last", "replica", "session")

    def __init__(self, session: str) -> None:
        self.session = session
        self.replica: Replica[Item, Result] | None = None
        self.last: Replica[Item, Result] | None = None  # where the session was lost
        self.epoch = 1
        self.known = EMPTY
        self.commit: tuple[int, ...] = ()
        self.fork: Fork | None = None
        self.goes_back = False

    def take(self, replica: Replica[Item, Result]) -> None:
        replica.pin(self.session)
        self.replica = replica

    async def begin_from_others(self, history: History, ids: Ids | None, read_again: int) -> None:
        """Takes over the longest beginning that a session of this replica has, or is just reading, but for its last
        `read_again` tokens. ids: the history's, where it may be shared."""
        assert self.replica is not None
        self.fork = None if ids is None else await self.replica.prefixes.begin(self.session, ids, read_again)
        if self.fork is not None:
            self.known = mark_at(history, self.fork.length)

    def leave(self) -> None:
        """Frees what the unit holds; the next update opens the session anew, wherever that is."""
        if self.replica is not None:
            if self.fork is not None:
                self.replica.prefixes.dropped(self.fork)
            self.replica.release(self.session)
        self.fork, self.goes_back = None, False
        self.last, self.replica = self.replica, None
        self.epoch += 1
        self.known = EMPTY
        self.commit = ()

    def go_back(self) -> None:
        """To what is known, after an item that nobody waits for any more: the unit may have served it, or not."""
        if self.fork is not None or self.commit or not self.known.length:
            self.leave()  # it may not hold as much
        else:
            self.epoch += 1
            self.goes_back = True

    def keep(self, ids: Ids) -> None:
        """Leaves what the unit has committed of a complete history for others to begin from."""
        if self.replica is not None:
            self.replica.keep(self.session, ids[: self._committed])
            self.replica = None

    def update(self, append: Sequence[int], nodes: int = 0) -> SessionUpdate:
        """Of the item that comes next; room is made for it and its tree."""
        assert self.replica is not None
        known, source = self.known, self.fork.source.session if self.fork else ""
        if self.goes_back:
            source = self.session
        self.replica.prefixes.reserve(self.session, known.length + len(append) + nodes)
        return SessionUpdate(
            self.session, self.epoch, known.length, known.hash, self.commit, tuple(append), fork_of=source
        )

    def advance(self, mark: Mark, commit: tuple[int, ...] = ()) -> None:
        """The unit has served an update up to `mark`, or will have once it applies `commit`."""
        assert self.replica is not None
        self.known = mark
        self.commit = commit
        self.goes_back = False
        if self.fork is not None:
            self.replica.prefixes.served(self.fork)
            self.fork = None
        self.replica.prefixes.advance(self.session, self._committed)

    def gives_up_shared(self, fault: Exception) -> bool:
        """Whether the fault is due to what is shared here and nobody is to blame: the session begins again without."""
        if self.replica is None or not isinstance(fault, UnitError):
            return False
        if fault.code is ErrorCode.SESSION_LOST and self.fork is not None:
            self.replica.prefixes.lost(self.fork)
            self.fork = None
            return True
        return fault.code is ErrorCode.EXHAUSTED and self.replica.prefixes.evict_all("exhausted")

    @property
    def _committed(self) -> int:
        return self.known.length - len(self.commit)
