"""What a verifier does: one pass of the target model over the items of a task."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from hetspec.decoding.tree import TokenTree
from hetspec.model.kv import CacheFullError, KVCache
from hetspec.model.lease import WeightsError
from hetspec.model.transformer import PassStopped, Rows, RowTable, Span, Transformer
from hetspec.rpc.messages import ErrorCode, HiddenRows, HiddenStates, PassResult, UnitError, VerifyItem, WorkTrace
from hetspec.rpc.sessions import Session, SessionTable, enter_all
from hetspec.rpc.work import ShouldStop, Stopped
from hetspec.verification.early_exit import EarlyExit, check_early_exit


class TargetState:
    """A session's KV: committed positions, then the slots of its last tree. pruned: its nodes that have no KV."""

    __slots__ = ("cache", "pruned")

    def __init__(self, cache: KVCache) -> None:
        self.cache = cache
        self.pruned: tuple[int, ...] = ()

    def keep(self, nodes: Sequence[int]) -> None:
        if dropped := set(nodes) & set(self.pruned):
            raise UnitError(ErrorCode.INVALID, f"commit: node {min(dropped)} left the pass early")
        self.pruned = ()
        first_slot = self.cache.length
        self.cache.keep([first_slot + node for node in nodes])

    def fork(self, length: int) -> TargetState:
        return TargetState(self.cache.fork(length))

    def release(self) -> None:
        self.cache.release()


TargetSession = Session[TargetState]


class VerifierEngine:
    """Sessions over a transformer. Every item of a task goes through the same pass."""

    def __init__(
        self, transformer: Transformer, check_weights: Callable[[], None], early_exit: EarlyExit | None = None
    ) -> None:
        """check_weights: raises UnitError when the weights are no longer valid. early_exit None: every node goes
        through all layers."""
        self.transformer = transformer
        self.early_exit = early_exit
        self.sessions: SessionTable[TargetState] = SessionTable(lambda: TargetState(transformer.new_cache()))
        self._check_weights = check_weights

    def run(self, items: Sequence[VerifyItem], should_stop: ShouldStop) -> PassResult[HiddenStates]:
        """Hidden rows an item, or UnitError for one that cannot be run. Raises Stopped between layers."""
        self._check_weights()
        entered = self._enter_all(items)
        runnable = [(item, s) for item, s in zip(items, entered, strict=True) if not isinstance(s, UnitError)]
        if not runnable:
            return PassResult(tuple(s for s in entered if isinstance(s, UnitError)))
        rows, table, trace = self._pass(runnable, should_stop)
        first = 0
        states: list[HiddenStates] = []
        for item, session in runnable:
            start, stop = np.searchsorted(table.left, (first, first + _rows(item)))
            pruned = _pruned(item, table.left[start:stop] - first)
            session.history.extend(item.update.append)
            session.tree, session.state.pruned = item.tree, pruned
            states.append(_wanted(item, rows[start:stop], pruned))
            first += _rows(item)
        results = iter(states)
        return PassResult(tuple(s if isinstance(s, UnitError) else next(results) for s in entered), trace)

    def release(self, sessions: Sequence[str]) -> None:
        self.sessions.release(sessions)

    def _pass(
        self, runnable: Sequence[tuple[VerifyItem, TargetSession]], should_stop: ShouldStop
    ) -> tuple[Rows, RowTable, WorkTrace]:
        spans = [Span(session.state.cache, item.update.append, item.tree) for item, session in runnable]
        looks = self.early_exit.looks([item for item, _ in runnable]) if self.early_exit else None
        try:
            rows, table = self.transformer.run(spans, should_stop, looks)
        except PassStopped as stop:
            raise Stopped from stop
        except WeightsError as error:
            raise UnitError(ErrorCode.WEIGHTS_UNAVAILABLE, str(error)) from error
        weights = self.transformer.weights
        trace = WorkTrace(
            rows_by_layer=tuple(table.by_layer),
            kv_len_by_row=tuple(table.kv_len),
            weight_bytes_read=weights.pass_bytes_read,
            weight_reads=weights.pass_reads,
        )
        return rows, table, trace

    def _enter_all(self, items: Sequence[VerifyItem]) -> list[TargetSession | UnitError]:
        room = self.transformer.max_rows

        def enter(item: VerifyItem) -> TargetSession:
            nonlocal room
            session = self._enter(item, room)
            room -= _rows(item)
            return session

        return enter_all(items, enter)

    def _enter(self, item: VerifyItem, room: int) -> TargetSession:
        """`room`: rows that the task's other items leave."""
        self._check_item(item)
        if _rows(item) > room:
            limit = self.transformer.max_rows
            message = f"append, tree: {_rows(item)} rows, the task has room for {room} of its {limit}"
            raise UnitError(ErrorCode.EXHAUSTED, message)
        try:
            session = self.sessions.enter(item.update)
            cache = session.state.cache
            self._check_context(cache.length + len(item.update.append), item.tree)
            cache.reserve(cache.length + len(item.update.append) + len(item.tree))
        except CacheFullError as error:
            raise UnitError(ErrorCode.EXHAUSTED, str(error)) from error
        return session

    def _check_item(self, item: VerifyItem) -> None:
        if not item.update.append:
            raise UnitError(ErrorCode.INVALID, "append: empty, must hold at least the last emitted token")
        try:
            check_early_exit(item)
        except ValueError as error:
            raise UnitError(ErrorCode.INVALID, str(error)) from error
        vocab_size = self.transformer.config.vocab_size
        for name, tokens in (("append", item.update.append), ("tree.tokens", item.tree.tokens)):
            for i, token in enumerate(tokens):
                if not 0 <= token < vocab_size:
                    raise UnitError(ErrorCode.INVALID, f"{name}[{i}] = {token}, must be in [0, {vocab_size})")

    def _check_context(self, committed: int, tree: TokenTree) -> None:
        end, limit = committed + max(tree.depths(), default=0), self.transformer.max_context
        if end > limit:
            raise UnitError(ErrorCode.INVALID, f"append, tree: reach position {end}, must be at most {limit}")


def _rows(item: VerifyItem) -> int:
    return len(item.update.append) + len(item.tree)


def _pruned(item: VerifyItem, left: NDArray[np.int64]) -> tuple[int, ...]:
    """left: those of the item's rows that came out of the pass."""
    if len(left) == _rows(item):
        return ()
    return tuple((np.setdiff1d(np.arange(_rows(item)), left) - len(item.update.append)).tolist())


def _wanted(item: VerifyItem, rows: Rows, pruned: tuple[int, ...]) -> HiddenStates:
    match item.hidden:
        case HiddenRows.NONE:
            return HiddenStates(pruned=pruned)
        case HiddenRows.LAST:
            return HiddenStates.of(rows[len(item.update.append) - 1 :], pruned)
        case HiddenRows.ALL:
            return HiddenStates.of(rows, pruned)
