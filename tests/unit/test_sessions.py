"""Sessions under any updates, beside a model that states the contract plainly (common.proto, SessionUpdate)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from hetspec.decoding.history import History
from hetspec.decoding.tree import TokenTree
from hetspec.rpc.messages import ErrorCode, SessionUpdate, UnitError
from hetspec.rpc.sessions import SessionTable
from tests.unit.strategies import trees

NAMES = ("a", "b", "c")
HELD: set[int] = set()


class CountedState:
    """Remembers what it was told; a state is held from its making to its release."""

    def __init__(self) -> None:
        self.kept: list[int] = []
        HELD.add(id(self))

    def keep(self, nodes: Sequence[int]) -> None:
        self.kept += nodes

    def fork(self, length: int) -> CountedState:
        return CountedState()

    def release(self) -> None:
        HELD.remove(id(self))


@dataclass
class Expected:
    epoch: int
    ids: list[int] = field(default_factory=list)
    tree: TokenTree = TokenTree()


class Sessions(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        HELD.clear()
        self.table: SessionTable[CountedState] = SessionTable(CountedState)
        self.expected: dict[str, Expected] = {}

    @rule(
        name=st.sampled_from(NAMES),
        epoch_step=st.sampled_from([0, 0, 0, 0, 1, 2, -1]),
        commit_to=st.integers(-1, 14),
        wrong=st.sampled_from(["", "", "", "", "length", "hash", "commit"]),
        append=st.lists(st.integers(0, 9), max_size=3),
        tree=trees(),
        fork_of=st.sampled_from(["", "", *NAMES]),
        fork_len=st.integers(0, 6),
        anew=st.booleans(),
    )
    def update(
        self, name: str, epoch_step: int, commit_to: int, wrong: str, append: list[int], tree: TokenTree,
        fork_of: str, fork_len: int, anew: bool,
    ) -> None:  # fmt: skip
        known = self.expected.get(name)
        opens = known is None or epoch_step > 0
        epoch = max(0, (known.epoch if known else 1) + epoch_step)
        base = Expected(epoch) if opens or known is None else known
        parent = self.expected.get(fork_of)
        if opens and fork_of:
            base.ids = list(parent.ids[:fork_len]) if parent else []
        path = base.tree.path(min(commit_to, len(base.tree) - 1))
        commit = [*path, len(base.tree)] if wrong == "commit" else path
        ids = [*base.ids, *(base.tree.tokens[node] for node in path)]
        committed = fork_len if opens and fork_of else len(ids) + (wrong == "length")
        update = SessionUpdate(
            name, epoch, committed, History(ids).hash ^ (wrong == "hash"), tuple(commit), tuple(append), fork_of
        )
        code = self._refusal(opens, known, epoch, wrong, committed, parent, fork_of)
        if code is None:
            session = self.table.enter(update)
            assert list(session.history) == ids
            assert len(session.tree) == 0
            session.history.extend(append)
            session.tree = tree
            self.expected[name] = Expected(epoch, [*ids, *append], tree)
            return
        with pytest.raises(UnitError) as refused:
            self.table.enter(update)
        assert refused.value.code == code
        self._after_refusal(name, code, opens, base)

    def _refusal(
        self, opens: bool, known: Expected | None, epoch: int, wrong: str, committed: int, parent: Expected | None,
        fork_of: str,
    ) -> ErrorCode | None:  # fmt: skip
        if not opens and known and epoch < known.epoch:
            return ErrorCode.INVALID
        if opens and fork_of and (parent is None or len(parent.ids) < committed):
            return ErrorCode.SESSION_LOST
        if opens and not fork_of and committed:
            return ErrorCode.SESSION_LOST
        if wrong == "commit":
            return ErrorCode.INVALID
        length_differs = wrong == "length" and not (opens and fork_of)  # a fork is cut to the length it asks for
        return ErrorCode.SESSION_LOST if wrong == "hash" or length_differs else None

    def _after_refusal(self, name: str, code: ErrorCode, opens: bool, base: Expected) -> None:
        if code == ErrorCode.SESSION_LOST:
            self.expected.pop(name, None)  # it is gone, and has to be opened again
        elif opens:
            self.expected[name] = base  # open, and as it was asked for before the commit

    @rule(names=st.lists(st.sampled_from(NAMES)))
    def release(self, names: list[str]) -> None:
        self.table.release(names)
        for name in names:
            self.expected.pop(name, None)

    @invariant()
    def no_state_is_lost_or_left(self) -> None:
        assert len(self.table) == len(self.expected) == len(HELD)


Sessions.TestCase.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)
test_sessions_follow_the_contract = Sessions.TestCase


def enter(table: SessionTable[CountedState], update: SessionUpdate) -> CountedState:
    session = table.enter(update)
    session.history.extend(update.append)
    return session.state


def test_messages_name_what_was_wrong() -> None:
    table: SessionTable[CountedState] = SessionTable(CountedState)
    opening = SessionUpdate("s", 2, 0, History().hash, append=(1, 2))
    enter(table, opening)
    for update, message in (
        (replace(opening, epoch=1), "INVALID: epoch: 1 is stale, the session is at 2"),
        (replace(opening, commit=(0,)), r"INVALID: commit: \[0\] is not a path of the last tree"),
        (replace(opening, committed_len=3), "SESSION_LOST: s: holds 2 tokens, not these 3"),
        (replace(opening, committed_len=3), "SESSION_LOST: s: not open here"),
        (replace(opening, fork_of="p", committed_len=1), "SESSION_LOST: fork_of: p is not open here with so many"),
    ):
        with pytest.raises(UnitError, match=message):
            table.enter(update)


def test_the_state_keeps_the_committed_nodes_once() -> None:
    table: SessionTable[CountedState] = SessionTable(CountedState)
    session = table.enter(SessionUpdate("s", 1, 0, History().hash))
    session.tree = TokenTree((5, 6, 7), (-1, -1, 1))
    state = enter(table, SessionUpdate("s", 1, 2, History([6, 7]).hash, commit=(1, 2)))
    assert state.kept == [1, 2]
    enter(table, SessionUpdate("s", 1, 2, History([6, 7]).hash))
    assert state.kept == [1, 2]
