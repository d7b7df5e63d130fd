"""What a drafter does: grows a token tree for each item of a task, from prompt lookup and the draft model."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from hetspec.decoding.adjust import Adjuster
from hetspec.decoding.constraint import DeadEnd
from hetspec.decoding.matcher import GrammarMatcher, Matchers
from hetspec.drafting.costs import LAST_STRETCH
from hetspec.drafting.draft_model import DraftRequest
from hetspec.drafting.draft_state import DraftState
from hetspec.drafting.growing import Growing
from hetspec.drafting.growth import Growth
from hetspec.drafting.lookup import NgramIndex
from hetspec.drafting.stop_rule import StopRule
from hetspec.drafting.tree_model import TreeModel
from hetspec.model.kv import CacheFullError
from hetspec.model.transformer import PassStopped
from hetspec.rpc.ids import check_ids, ids_of_rule
from hetspec.rpc.logs import log_event
from hetspec.rpc.messages import (
    Draft,
    DraftItem,
    DraftPolicy,
    ErrorCode,
    LookAhead,
    PassResult,
    Rows,
    UnitError,
    WorkTrace,
    rows_from_bytes,
)
from hetspec.rpc.sessions import Session, SessionTable, enter_all
from hetspec.rpc.work import ShouldStop, Stopped
from hetspec.v1.drafter_pb2 import DRAFT_SOURCE_GRAMMAR, DRAFT_SOURCE_LOOKUP, DRAFT_SOURCE_MODEL

MAX_NODES = 256
MAX_DEPTH = 64
_NO_FEATURES: Rows = np.empty((0, 0), np.float32)
DraftSession = Session[DraftState]


class DrafterEngine:
    def __init__(self, vocab_size: int, model: TreeModel | None, matchers: Matchers | None = None) -> None:
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
            session = self.sessions.enter(item.update, keeps_tree=item.look_ahead is not None)
        except CacheFullError as error:  # a fork copies a page
            raise UnitError(ErrorCode.EXHAUSTED, str(error)) from error
        if item.look_ahead is not None:
            return _Pending(item, session, _look_ahead(session, item, item.look_ahead, matcher), adjuster)
        session.history.extend(item.update.append)
        session.state.append(item.update.append)
        session.state.give(features)
        return _Pending(item, session, _new_growth(session, item, matcher), adjuster)

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
        if policy.stop is not None:
            self._check_stop(policy.stop, policy)
        if item.look_ahead is not None:
            _check_look_ahead(item, item.look_ahead)
        for source in policy.sources:
            if source not in self.sources:
                raise ValueError(f"policy.sources: {source} is not one of {self.sources}")
        check_ids((("append", item.update.append),), self._vocab_size)

    def _check_stop(self, stop: StopRule, policy: DraftPolicy) -> None:
        if policy.costs is not None:
            raise ValueError("policy.stop: is for chains, may not be given with policy.costs")
        if stop.needs_acceptance and not (self._model is not None and self._model.judges_acceptance):
            raise ValueError(f"policy.stop.kind = {stop.kind.value}: there is no acceptance head")

    def _features(self, item: DraftItem) -> Rows:
        """One row each of the last tokens committed after the update, of which the session's first has none."""
        if self._model is None or not self._model.reads_features:
            if item.hidden:
                raise ValueError(f"hidden: {len(item.hidden)} bytes, must be empty where no features are read")
            return _NO_FEATURES
        rows = rows_from_bytes(item.hidden, self._model.hidden_size)
        committed = item.update.length
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
        requests = [p for one in pending if (p := one.model_request(model.max_context)) is not None]
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
    growth: Growing
    adjuster: Adjuster

    def model_request(self, max_context: int) -> DraftRequest | None:
        item, position = self.item, len(self.session.history)
        state = self.session.state.model_to_ask(self.growth, item.policy, max_context)
        if state is None:
            return None
        stop = item.policy.stop
        judged = stop is not None and stop.needs_acceptance
        return DraftRequest(state, self.growth, item.sampling, item.noise, position, self.adjuster, judged)

    def finish(self) -> Draft:
        draft = self.session.state.finish(self.growth)
        self.session.tree = draft.tree
        return draft


def _new_growth(session: DraftSession, item: DraftItem, matcher: GrammarMatcher | None) -> Growth:
    """Of a new tree, with what must follow, and runs that occurred before, as far as the grammar allows them."""
    follows_grammar = DRAFT_SOURCE_GRAMMAR in item.policy.sources
    forced = matcher.forced() if matcher is not None and follows_grammar else ()
    return session.state.new_growth(item.policy, _allowed(matcher), forced)


def _look_ahead(session: DraftSession, item: DraftItem, look: LookAhead, matcher: GrammarMatcher | None) -> Growing:
    try:
        return session.state.look_ahead(look, item.policy, MAX_NODES, _allowed(matcher))
    except ValueError as error:
        raise UnitError(ErrorCode.INVALID, str(error)) from error


def _allowed(matcher: GrammarMatcher | None) -> Callable[[Sequence[int]], int]:
    """How many tokens of a run may follow."""
    return len if matcher is None else matcher.follows


def _check_look_ahead(item: DraftItem, look: LookAhead) -> None:
    if not 1 <= look.outcomes <= MAX_NODES:
        raise ValueError(f"look_ahead.outcomes = {look.outcomes}, must be in [1, {MAX_NODES}]")
    update = item.update
    for name, has_any in (
        ("update.commit", update.commit),
        ("update.append", update.append),
        ("hidden", item.hidden),
        ("policy.costs", item.policy.costs),
    ):
        if has_any:
            raise ValueError(f"look_ahead: {name} must be empty with it")
