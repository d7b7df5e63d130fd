"""The sessions a unit holds, and the precondition that every item must meet (common.proto, SessionUpdate)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, Protocol, Self, TypeVar

from hetspec.decoding.history import History
from hetspec.decoding.tree import TokenTree
from hetspec.rpc.messages import ErrorCode, SessionUpdate, UnitError


class SessionState(Protocol):
    """What a unit keeps of a session besides its tokens."""

    def keep(self, nodes: Sequence[int]) -> None:
        """These nodes of the last tree are committed; the rest of it is dropped."""

    def fork(self, length: int) -> Self:
        """A twin of the first `length` committed tokens."""

    def release(self) -> None: ...


State = TypeVar("State", bound=SessionState)


class Session(Generic[State]):
    """Committed tokens, the tree that hangs below them, and the unit's own state."""

    __slots__ = ("epoch", "history", "state", "tree")

    def __init__(self, epoch: int, history: History, state: State) -> None:
        self.epoch = epoch
        self.history = history
        self.state = state
        self.tree = TokenTree()

    def commit(self, nodes: Sequence[int]) -> None:
        if not self.tree.is_path(nodes):
            raise UnitError(ErrorCode.INVALID, f"commit: {list(nodes)} is not a path of the last tree")
        self.state.keep(nodes)
        self.history.extend([self.tree.tokens[node] for node in nodes])
        self.tree = TokenTree()


class SessionTable(Generic[State]):
    def __init__(self, new_state: Callable[[], State]) -> None:
        self._new_state = new_state
        self._sessions: dict[str, Session[State]] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def enter(self, update: SessionUpdate, keeps_tree: bool = False) -> Session[State]:
        """The session, opened if need be, in the state that `update` asks for before its `append`. keeps_tree: it holds
        no commit, and the last tree stays.

        Raises UnitError: SESSION_LOST when it is in another state (it is dropped then), INVALID for a stale epoch or a
        commit that is not a path.
        """
        session = self._sessions.get(update.session)
        if session is None or update.epoch > session.epoch:
            session = self._open(update)
        elif update.epoch < session.epoch:
            raise UnitError(ErrorCode.INVALID, f"epoch: {update.epoch} is stale, the session is at {session.epoch}")
        if not keeps_tree:
            session.commit(update.commit)
        if not _agrees(session.history, update):
            self.release([update.session])
            found, expected = len(session.history), update.committed_len
            raise UnitError(ErrorCode.SESSION_LOST, f"{update.session}: holds {found} tokens, not these {expected}")
        return session

    def release(self, names: Sequence[str]) -> None:
        for name in names:
            session = self._sessions.pop(name, None)
            if session is not None:
                session.state.release()

    def _open(self, update: SessionUpdate) -> Session[State]:
        """In place of one of its name, of which it may be the beginning."""
        if update.fork_of != update.session:
            self.release([update.session])
        try:
            session = self._begin(update)
        finally:
            self.release([update.session])
        self._sessions[update.session] = session
        return session

    def _begin(self, update: SessionUpdate) -> Session[State]:
        if update.fork_of:
            return self._fork(update)
        if update.committed_len:
            raise UnitError(ErrorCode.SESSION_LOST, f"{update.session}: not open here")
        return Session(update.epoch, History(), self._new_state())

    def _fork(self, update: SessionUpdate) -> Session[State]:
        parent = self._sessions.get(update.fork_of)
        if parent is None or len(parent.history) < update.committed_len:
            raise UnitError(ErrorCode.SESSION_LOST, f"fork_of: {update.fork_of} is not open here with so many tokens")
        history = History(parent.history[: update.committed_len])
        return Session(update.epoch, history, parent.state.fork(update.committed_len))


class HasUpdate(Protocol):
    @property
    def update(self) -> SessionUpdate: ...


Item = TypeVar("Item", bound=HasUpdate)
Entered = TypeVar("Entered")


def enter_all(items: Sequence[Item], enter: Callable[[Item], Entered]) -> list[Entered | UnitError]:
    """What `enter` makes of each item of a task, or its refusal. A session may be in a task once."""
    entered: list[Entered | UnitError] = []
    names: set[str] = set()
    for item in items:
        name = item.update.session
        try:
            if name in names:
                raise UnitError(ErrorCode.INVALID, f"session: {name} is in this task twice")
            names.add(name)
            entered.append(enter(item))
        except UnitError as error:
            entered.append(error)
    return entered


def _agrees(history: History, update: SessionUpdate) -> bool:
    return len(history) == update.committed_len and history.hash == update.committed_hash
