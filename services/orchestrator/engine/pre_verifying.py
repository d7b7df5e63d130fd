"""A session's drafter checks drafted tokens before the verifier does, where it holds the target (AHASD, arXiv
2604.25326, pre-verification). What it finds guides the drafting; nothing is emitted for it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hetspec.decoding.history import History
from hetspec.decoding.tree import TokenTree
from hetspec.rpc.messages import HiddenRows, HiddenStates, VerifyItem, Walk, WalkItem
from hetspec.telemetry.tracing import span
from orchestrator.clock.world import NotPriced
from orchestrator.engine.checks import check_hidden
from orchestrator.engine.choosing import Choosing
from orchestrator.engine.foreseen import Foreseen, agreement
from orchestrator.engine.model import ModelBounds
from orchestrator.engine.seat import mark_at
from orchestrator.engine.session import Session
from orchestrator.timeline.task import Kind
from orchestrator.units.errors import FAULTS
from orchestrator.units.replica import Replica
from orchestrator.units.replica_set import ReplicaSet

UNKNOWN = -1
_NO_TREE = TokenTree()
_Unit = Replica[VerifyItem, HiddenStates]


@dataclass(frozen=True, slots=True)
class _Question:
    """What hangs below tokens of which all are decided or foreseen, and the walk over it, but for its rows."""

    ids: History
    tree: TokenTree
    walk: WalkItem


class PreVerifying:
    def __init__(
        self,
        pre_verifiers: ReplicaSet[VerifyItem, HiddenStates],
        pre_samplers: ReplicaSet[WalkItem, Walk],
        choosing: Choosing,
        bounds: ModelBounds,
    ) -> None:
        self._pre_verifiers = pre_verifiers
        self._pre_samplers = pre_samplers
        self._choosing = choosing
        self._bounds = bounds

    def is_possible(self, session: Session) -> bool:
        """Whether the session's drafter holds the target, and would compute the verifier's bits."""
        return self._unit(session) is not None and self._pre_samplers.try_pick(session.digests.sampler) is not None

    async def check(self, session: Session, tokens: Sequence[int]) -> int:
        """How many of these, which would follow the session's tokens as they are now, the target chooses there.

        UNKNOWN where nobody can tell; no fault of a unit leads to more. One check of a session at a time. It may be
        cancelled; what the unit has read by then is not lost.
        """
        foreseen = session.foreseen.beyond(session.history)
        agreed = agreement(tokens, foreseen)
        if agreed < len(foreseen) or agreed == len(tokens) or self._ends(session, foreseen):
            return agreed
        unit = self._unit(session)
        rest = tokens[agreed:]
        if unit is None or not self._has_room(session, unit, foreseen, rest):
            return UNKNOWN
        start = session.mark.length
        question = self._question(session, foreseen, rest)
        try:
            hidden = await self._ask(session, unit, question)
        except NotPriced:
            return UNKNOWN
        except FAULTS as fault:
            if not session.pre_verifier.gives_up_shared(fault):
                unit.blame(fault)
            session.pre_verifier.leave()
            return UNKNOWN
        walk = await self._choosing.choose_once(self._pre_samplers, session, replace(question.walk, hidden=hidden))
        if walk is None:
            return UNKNOWN
        if session.features is not None:
            length = len(question.ids)
            session.features.add(length - 1, hidden[: self._bounds.row_bytes])
            session.features.add_accepted(length, hidden, walk.accepted)
        session.foreseen = Foreseen(start, (*foreseen, *walk.tokens))
        return agreed + len(walk.accepted)

    def _ends(self, session: Session, foreseen: tuple[int, ...]) -> bool:
        """Whether nothing follows what is foreseen."""
        end_ids = self._choosing.end_ids(session)
        return len(foreseen) >= session.left or bool(foreseen and foreseen[-1] in end_ids)

    def _unit(self, session: Session) -> _Unit | None:
        """That of the session's drafter; None where that does not hold the target, or computes other bits than the
        session's verifier."""
        seat, drafter = session.pre_verifier, session.drafter.replica
        address = drafter.address if drafter is not None else ""
        if seat.replica is not None and seat.replica.alive and seat.replica.address == address:
            return seat.replica
        return self._pre_verifiers.at(address, session.digests.verifier)

    def _has_room(self, session: Session, unit: _Unit, foreseen: Sequence[int], rest: Sequence[int]) -> bool:
        told = unit.description
        context = min(told.max_context, self._bounds.max_context)
        rows, ends_at = len(rest), session.mark.length + len(foreseen) + len(rest)
        return bool(ends_at <= context and rows <= told.max_rows // 2)

    def _question(self, session: Session, foreseen: tuple[int, ...], rest: Sequence[int]) -> _Question:
        ids = session.history_with(foreseen)
        tree = TokenTree.chain(rest)
        return _Question(ids, tree, self._choosing.walk_item(session, tree, foreseen=foreseen))

    async def _ask(self, session: Session, unit: _Unit, question: _Question) -> bytes:
        """Hidden rows of the last of the ids and of the tree. Ids that the unit does not know yet go before them, or
        along with them."""
        seat, ids = session.pre_verifier, question.ids
        await self._take(session, unit, len(ids))
        chunk = min(self._bounds.prompt_chunk_tokens, unit.description.max_rows // 2)
        while len(ids) - seat.known.length > chunk:
            await self._pass(session, unit, ids, seat.known.length + chunk, _NO_TREE)
        return await self._pass(session, unit, ids, len(ids), question.tree)

    async def _take(self, session: Session, unit: _Unit, length: int) -> None:
        """A seat of a unit that knows fewer than `length` of the session's tokens."""
        seat = session.pre_verifier
        if seat.replica is not unit or seat.known.length >= length:
            seat.leave()
            seat.take(unit)
            await session.begin(seat)

    async def _pass(self, session: Session, unit: _Unit, ids: History, stop: int, tree: TokenTree) -> bytes:
        seat = session.pre_verifier
        append = ids[seat.known.length : stop]
        item = VerifyItem(seat.update(append, len(tree)), tree, HiddenRows.LAST if tree else HiddenRows.NONE)
        rows = len(append) + len(tree)
        with span("pre-verify", nodes=len(tree)), session.timeline.task(Kind.PRE_VERIFY, f"{len(tree)} tokens"):
            try:
                served = await unit.submit(item, rows, is_prompt=len(append) > 1)
            except asyncio.CancelledError:
                seat.go_back()
                raise
            session.account("pre_verifier", served)
            check_hidden(served.value, item, self._bounds.row_bytes)
        seat.advance(mark_at(ids, stop))
        return served.value.data
