"""What a drafter does: grows a token tree for each item of a task, from prompt lookup and the draft model."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hetspec.decoding.adjust import Adjuster
from hetspec.decoding.constraint import DeadEnd
from hetspec.decoding.matcher import GrammarMatcher, Matchers
from hetspec.drafting.costs import LAST_STRETCH
from hetspec.drafting.draft_model import DraftModel, DraftRequest
from hetspec.drafting.draft_state import DraftState
from hetspec.drafting.growth import Growth
from hetspec.drafting.lookup import NgramIndex
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
        """The item's session, moved on to the item's tokens; a draft begins with what must follow, then takes what
        prompt lookup finds."""
        try:
            self._check(item)
            features = self._features(item)
            adjuster, matcher = self._rule(item)
        except ValueError as error:
            raise UnitError(ErrorCode.INVALID, str(error)) from error
        except DeadEnd as error:
            raise UnitError(ErrorCode.DEAD_END, str(error)) from error
        try:
            session = self.sessions.enter(item.update)
        except CacheFullError as error:  # a fork copies a page
            raise UnitError(ErrorCode.EXHAUSTED, str(error)) from error
        session.history.extend(item.update.append)
        session.state.append(item.update.append)
        session.state.give(features)
        one = _Pending(item, session, Growth(item.policy), adjuster, matcher)
        one.take_forced()
        one.look_up()
        return one

    def _check(self, item: DraftItem) -> None:
        policy = item.policy
        bounds = (("max_nodes", policy.max_nodes, MAX_NODES), ("max_depth", policy.max_depth, MAX_DEPTH))
        for name, value, limit in (*bounds, ("width", policy.width, MAX_NODES)):
            if not 1 <= value <= limit:
                raise ValueError(f"policy.{name} = {value}, must be in [1, {limit}]")
        if not 0 <= policy.min_gain <= 1:
            raise ValueError(f"policy.min_gain = {policy.min_gain}, must be in [0, 1]")
        if policy.costs is not None:
            told = (("verify", policy.costs.verify, 1 + policy.max_nodes),)
            for name, curve, rows in (*told, ("draft_step", policy.costs.draft_step, max(LAST_STRETCH, policy.width))):
                if curve.max_rows < rows:
                    raise ValueError(f"policy.costs.{name}: tells up to {curve.max_rows} rows, must tell {rows}")
        for source in policy.sources:
            if source not in self.sources:
                raise ValueError(f"policy.sources: {source} is not one of {self.sources}")
        check_ids((("append", item.update.append),), self._vocab_size)

    def _features(self, item: DraftItem) -> Rows:
        """One row each of the last tokens committed after the update, of which the session's first has none."""
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
        check_ids(ids_of_rule(item.sampling, item.constraint, item.past), self._vocab_size)
        matcher = matchers.at(item.update.session, grammar, item.past.output) if matchers and grammar else None
        return Adjuster(item.sampling, item.constraint, item.past, matcher), matcher

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

    def take_forced(self) -> None:
        if self.matcher is not None and DRAFT_SOURCE_GRAMMAR in self.item.policy.sources:
            self.growth.add_run(self.matcher.forced(), 1.0, DRAFT_SOURCE_GRAMMAR)

    def look_up(self) -> None:
        """Runs that occurred before, each as far as the grammar allows it."""
        allowed = len if self.matcher is None else self.matcher.follows
        self.session.state.look_up(self.growth, self.item.policy, allowed)

    def model_request(self, max_context: int) -> DraftRequest | None:
        item, position = self.item, len(self.session.history)
        state = self.session.state.model_to_ask(self.growth, item.policy, max_context)
        if state is None:
            return None
        return DraftRequest(state, self.growth, item.sampling, item.noise, position, self.adjuster)

    def finish(self) -> Draft:
        draft = self.session.state.finish(self.growth)
        self.session.tree = draft.tree
        return draft
