"""First step of a round. A drafter that is missing, fails or answers nonsense never stops a request."""

from __future__ import annotations

from hetspec.decoding.tree import TokenTree
from hetspec.rpc.messages import Draft, DraftItem, DraftPolicy
from orchestrator.engine.checks import check_draft
from orchestrator.engine.model import ModelBounds
from orchestrator.engine.session import Session
from orchestrator.policies.drafting import DraftRoom, draft_policy
from orchestrator.units.errors import FAULTS
from orchestrator.units.replica import Replica
from orchestrator.units.replica_set import ReplicaSet

NO_DRAFT = TokenTree()


class Drafting:
    def __init__(self, drafters: ReplicaSet[DraftItem, Draft], bounds: ModelBounds) -> None:
        self._drafters = drafters
        self._bounds = bounds

    async def draft(self, session: Session) -> TokenTree:
        """A tree below the session's last token; an empty one where there is nothing sensible to be had."""
        if (replica := self._find(session)) is None:
            return NO_DRAFT
        policy = self._policy(session, replica)
        if policy is None or not session.drafting.may_draft():
            return NO_DRAFT
        try:
            tree = await self._ask(session, replica, policy)
        except FAULTS:
            session.drafter.leave()
            session.drafting.failed()
            return NO_DRAFT
        session.drafting.succeeded()
        session.statistics.drafted += len(tree)
        return tree

    def _find(self, session: Session) -> Replica[DraftItem, Draft] | None:
        seat = session.drafter
        if seat.replica is not None and not seat.replica.alive:
            seat.leave()
        return seat.replica or self._drafters.try_pick(avoid=seat.last)

    def _policy(self, session: Session, replica: Replica[DraftItem, Draft]) -> DraftPolicy | None:
        length = session.mark.length
        room = DraftRoom(
            max_nodes=session.request.max_nodes,
            max_depth=session.request.max_depth,
            left=session.left,
            context=self._bounds.max_context - length,
            rows=self._bounds.max_rows - self._bounds.prompt_chunk_tokens,
            drafter=replica.description,
            drafter_context=replica.description.max_context - length,
        )
        return draft_policy(session.request.mode, room)

    async def _ask(self, session: Session, replica: Replica[DraftItem, Draft], policy: DraftPolicy) -> TokenTree:
        seat, request = session.drafter, session.request
        seat.take(replica)
        append = session.history[seat.known.length :]
        item = DraftItem(seat.update(append), policy, request.sampling, request.noise)
        is_prompt = len(append) > self._bounds.prompt_chunk_tokens
        served = await replica.submit(item, len(append) + policy.max_nodes, is_prompt)
        session.account("drafter", served)
        check_draft(served.value, policy, self._bounds.vocab_size)
        seat.advance(session.mark)
        return served.value.tree
