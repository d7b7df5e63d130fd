"""First step of a round. A drafter that is missing, fails or answers nonsense never stops a request."""

from __future__ import annotations

from hetspec.decoding.tree import TokenTree
from hetspec.rpc.messages import Draft, DraftItem, DraftPolicy
from hetspec.telemetry.tracing import span
from hetspec.v1 import drafter_pb2
from orchestrator.engine import conditions
from orchestrator.engine.checks import check_draft
from orchestrator.engine.model import ModelBounds
from orchestrator.engine.session import Session
from orchestrator.policies.drafting import DraftRoom, draft_policy
from orchestrator.policies.mode import Mode
from orchestrator.units.errors import FAULTS
from orchestrator.units.replica import Replica
from orchestrator.units.replica_set import ReplicaSet

NO_DRAFT = TokenTree()
_SOURCES = {int(number): name.removeprefix("DRAFT_SOURCE_").lower() for name, number in drafter_pb2.DraftSource.items()}


def source_names(draft: Draft) -> tuple[str, ...]:
    """Of each node: "lookup", "model", "grammar"."""
    return tuple(_SOURCES[source] for source in draft.sources)


class Drafting:
    def __init__(self, drafters: ReplicaSet[DraftItem, Draft], bounds: ModelBounds) -> None:
        self._drafters = drafters
        self._bounds = bounds

    async def draft(self, session: Session) -> TokenTree:
        """A tree below the session's last token; an empty one where there is nothing sensible to be had."""
        session.draft_sources = ()
        if session.request.mode is Mode.PLAIN or (replica := self._find(session)) is None:
            return NO_DRAFT
        policy = self._policy(session, replica)
        if policy is None or not session.drafting.may_draft():
            return NO_DRAFT
        try:
            with span("draft", max_nodes=policy.max_nodes):
                draft = await self._ask(session, replica, policy)
        except FAULTS as fault:
            if not session.drafter.gives_up_shared(fault):
                replica.blame(fault)
                session.drafting.failed()
            session.drafter.leave()
            return NO_DRAFT
        session.drafting.succeeded()
        session.draft_sources = source_names(draft)
        session.statistics.add_draft(draft.tree, session.draft_sources)
        return draft.tree

    def _find(self, session: Session) -> Replica[DraftItem, Draft] | None:
        seat = session.drafter
        if seat.replica is not None and not seat.replica.alive:
            seat.leave()
        return seat.replica or self._drafters.try_pick(avoid=seat.last, ids=session.shared_ids)

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

    async def _ask(self, session: Session, replica: Replica[DraftItem, Draft], policy: DraftPolicy) -> Draft:
        seat, request = session.drafter, session.request
        if seat.replica is None:
            seat.take(replica)
            await session.begin(seat)
        append = session.history[seat.known.length :]
        item = DraftItem(
            seat.update(append, policy.max_nodes),
            policy,
            request.sampling,
            request.noise,
            constraint=conditions.constraint(request, self._bounds),
            past=conditions.past(session),
        )
        is_prompt = len(append) > self._bounds.prompt_chunk_tokens
        served = await replica.submit(item, len(append) + policy.max_nodes, is_prompt)
        session.account("drafter", served)
        check_draft(served.value, policy, self._bounds.vocab_size)
        seat.advance(session.mark)
        return served.value
