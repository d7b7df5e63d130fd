"""What a drafter does: grows a token tree for each item of a task, from prompt lookup and the draft model."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hetspec.decoding.adjust import Adjuster
from hetspec.decoding.constraint import DeadEnd
from hetspec.decoding.matcher import GrammarMatcher, Matchers
from hetspec.drafting.draft_model import DraftModel, DraftRequest
from hetspec.drafting.growth import Growth
from hetspec.drafting.lookup import NgramIndex
from hetspec.drafting.model_state import ModelState
from hetspec.model.kv import CacheFullError
from hetspec.model.transformer import PassStopped
from hetspec.rpc.ids import check_ids, ids_of_rule
from hetspec.rpc.logs import log_event
from hetspec.rpc.messages import Draft, DraftItem, ErrorCode, PassResult, Rows, UnitError, WorkTrace, rows_from_bytes
from hetspec.rpc.sessions import Session, SessionTable, enter_all
from hetspec.rpc.work import ShouldStop, Stopped
from hetspec.v1.drafter_pb2 import DRAFT_SOURCE_GRAMMAR, DRAFT_SOURCE_LOOKUP, DRAFT_SOURCE_MODEL

MAX_NODES = 256
MAX_DEPTH = 64
_NO_FEATURES: Rows = np.empty((0, 0), np.float32)


class DraftState:
    """A session's n-grams and, with a draft model, that one's state. `tree_tokens` are the last draft's."""

    def __init__(self, index: NgramIndex, model: ModelState | None) -> None:
        self.index = index
        self.model = model
        self.tree_tokens: tuple[int, ...] = ()

    def append(self, tokens: Sequence[int]) -> None:
        """Committed tokens that no draft held."""
        self.index.extend(tokens)
        if self.model is not None:
            self.model.append(tokens)

    def give(self, features: Rows) -> None:
        """The target's hidden rows before the last committed tokens."""
        if self.model is not None:
            self.model.give(features)

    def remember(self, tokens: tuple[int, ...], fed: Sequence[int | None]) -> None:
        """The draft just made, and the places of its nodes among those that the model was fed."""
        self.tree_tokens = tokens
        if self.model is not None:
            self.model.remember(fed)

    def keep(self, nodes: Sequence[int]) -> None:
        tokens = [self.tree_tokens[node] for node in nodes]
        self.index.extend(tokens)
        if self.model is not None:
            self.model.keep(nodes, tokens)
        self.tree_tokens = ()

    def fork(self, length: int) -> DraftState:
        return DraftState(self.index.copy(length), self.model.fork(length) if self.model else None)

    def release(self) -> None:
        if self.model is not None:
            self.model.release()


DraftSession = Session[DraftState]


class DrafterEngine:
    def __init__(self, vocab_size: int, model: DraftModel | None, matchers: Matchers | None = None) -> None:
        """matchers: of the target's vocabulary; None: items with a grammar are refused."""
        self.sources = (
            DRAFT_SOURCE_LOOKUP,
            *((DRAFT_SOURCE_MODEL,) if model else ()),
            *((DRAFT_SOURCE_GRAMMAR,) if matchers else ()),
        )
        self.sessions: SessionTable[DraftState] = SessionTable(self._new_state)
        self._vocab_size = vocab_size
        self._model = model
        self._matchers = matchers
        self._lacks_room = False  # for the draft model's KV, when last asked

    def run(self, items: Sequence[DraftItem], should_stop: ShouldStop) -> PassResult[Draft]:
        """A draft an item, or UnitError for one that breaks the contract. Raises Stopped between steps."""
        pending = enter_all(items, self._enter)
        trace = self._grow([one for one in pending if isinstance(one, _Pending)], should_stop)
        return PassResult(tuple(one.finish() if isinstance(one, _Pending) else one for one in pending), trace)

    def release(self, sessions: Sequence[str]) -> None:
        self.sessions.release(sessions)

    def _new_state(self) -> DraftState:
        return DraftState(NgramIndex(), self._model.new_state() if self._model else None)

    def _enter(self, item: DraftItem) -> _Pending:
        """The item's session, moved on to the item's tokens; a draft begins with what must follow, a tree then takes
        what prompt lookup finds."""
        self._check(item)
        features = self._features(item)
        adjuster, matcher = self._rule(item)
        try:
            session = self.sessions.enter(item.update)
        except CacheFullError as error:  # a fork copies a page
            raise UnitError(ErrorCode.EXHAUSTED, str(error)) from error
        session.history.extend(item.update.append)
        session.state.append(item.update.append)
        session.state.give(features)
        one = _Pending(item, session, Growth(item.policy), adjuster, matcher)
        one.take_forced()
        if not one.is_chain:
            one.look_up()
        return one

    def _check(self, item: DraftItem) -> None:
        policy = item.policy
        bounds = (("max_nodes", policy.max_nodes, MAX_NODES), ("max_depth", policy.max_depth, MAX_DEPTH))
        for name, value, limit in (*bounds, ("width", policy.width, MAX_NODES)):
            if not 1 <= value <= limit:
                raise UnitError(ErrorCode.INVALID, f"policy.{name} = {value}, must be in [1, {limit}]")
        if not 0 <= policy.min_gain <= 1:
            raise UnitError(ErrorCode.INVALID, f"policy.min_gain = {policy.min_gain}, must be in [0, 1]")
        for source in policy.sources:
            if source not in self.sources:
                raise UnitError(ErrorCode.INVALID, f"policy.sources: {source} is not one of {self.sources}")
        try:
            check_ids((("append", item.update.append),), self._vocab_size)
        except ValueError as error:
            raise UnitError(ErrorCode.INVALID, str(error)) from error

    def _features(self, item: DraftItem) -> Rows:
        """One row each of the last tokens committed after the update, of which the session's first has none."""
        try:
            return self._checked_hidden(item)
        except ValueError as error:
            raise UnitError(ErrorCode.INVALID, str(error)) from error

    def _checked_hidden(self, item: DraftItem) -> Rows:
        if self._model is None or not self._model.reads_features:
            if item.hidden:
                raise ValueError(f"hidden: {len(item.hidden)} bytes, must be empty where no features are read")
            return _NO_FEATURES
        rows = rows_from_bytes(item.hidden, self._model.hidden_size)
        committed = item.update.committed_len + len(item.update.append)
        if len(rows) > max(0, committed - 1):
            raise ValueError(f"hidden: {len(rows)} rows, must be fewer than the {committed} committed tokens")
        if not np.isfinite(rows).all():
            raise ValueError("hidden: holds NaN or infinity, must be finite")
        return rows

    def _rule(self, item: DraftItem) -> tuple[Adjuster, GrammarMatcher | None]:
        grammar, matchers = item.constraint.grammar, self._matchers
        try:
            check_ids(ids_of_rule(item.sampling, item.constraint, item.past), self._vocab_size)
            matcher = matchers.at(item.update.session, grammar, item.past.output) if matchers and grammar else None
            return Adjuster(item.sampling, item.constraint, item.past, matcher), matcher
        except ValueError as error:
            raise UnitError(ErrorCode.INVALID, str(error)) from error
        except DeadEnd as error:
            raise UnitError(ErrorCode.DEAD_END, str(error)) from error

    def _grow(self, pending: Sequence[_Pending], should_stop: ShouldStop) -> WorkTrace:
        """With the draft model, where a session asks for it and there is room for it; else lookup has to do."""
        model = self._model
        if model is None:
            return WorkTrace()
        requests = [p for one in pending if (p := one.model_request(model.transformer.max_context)) is not None]
        if not requests:
            return WorkTrace()
        try:
            model.grow(requests, should_stop)
            self._lacks_room = False
        except PassStopped as stop:
            raise Stopped from stop
        except CacheFullError as full:
            if not self._lacks_room:
                log_event("draft KV is full, lookup alone drafts", level=logging.WARNING, error=str(full))
            self._lacks_room = True
        return model.trace()


@dataclass(frozen=True, slots=True)
class _Pending:
    """An item being answered."""

    item: DraftItem
    session: DraftSession
    growth: Growth
    adjuster: Adjuster
    matcher: GrammarMatcher | None

    @property
    def is_chain(self) -> bool:
        """A chain has one source behind what must follow: the draft model, or else prompt lookup."""
        return self.item.policy.width == 1

    def take_forced(self) -> None:
        if self.matcher is not None and DRAFT_SOURCE_GRAMMAR in self.item.policy.sources:
            self.growth.add_run(self.matcher.forced(), 1.0, DRAFT_SOURCE_GRAMMAR)

    def look_up(self) -> None:
        """Runs that occurred before, each as far as the grammar allows it."""
        policy = self.item.policy
        if DRAFT_SOURCE_LOOKUP in policy.sources:
            for tokens, confidence in self.session.state.index.continuations(policy.width, policy.max_depth):
                allowed = len(tokens) if self.matcher is None else self.matcher.follows(tokens)
                self.growth.add_run(tokens[:allowed], confidence, DRAFT_SOURCE_LOOKUP)

    def model_request(self, max_context: int) -> DraftRequest | None:
        item, state, history = self.item, self.session.state.model, self.session.history
        position = len(history)
        wanted = DRAFT_SOURCE_MODEL in item.policy.sources and position + item.policy.max_depth <= max_context
        if state is None or not state.is_ready or not wanted or self.growth.is_decided:
            return None
        state.rewind(*history[-1:])
        return DraftRequest(state, self.growth, item.sampling, item.noise, position, self.adjuster)

    def finish(self) -> Draft:
        if self.is_chain and not self.growth:
            self.look_up()
        draft, fed = self.growth.draft()
        self.session.tree = draft.tree
        self.session.state.remember(draft.tree.tokens, fed)
        return draft
