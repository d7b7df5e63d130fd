"""First step of a round. A drafter that is missing, fails or answers nonsense never stops a request."""

from __future__ import annotations

from hetspec.drafting.costs import DraftCosts
from hetspec.rpc.messages import Draft, DraftItem, DraftPolicy
from hetspec.telemetry.tracing import span
from hetspec.v1 import drafter_pb2
from orchestrator.engine import conditions
from orchestrator.engine.checks import check_draft
from orchestrator.engine.features import Features
from orchestrator.engine.model import ModelBounds
from orchestrator.engine.session import Session
from orchestrator.policies.costs import CostQuery, CostSource
from orchestrator.policies.drafting import STEP_ROWS, DraftRoom, draft_policy
from orchestrator.policies.mode import Mode
from orchestrator.units.errors import FAULTS
from orchestrator.units.replica import Replica
from orchestrator.units.replica_set import ReplicaSet

NO_DRAFT = Draft()
_SOURCES = {int(number): name.removeprefix("DRAFT_SOURCE_").lower() for name, number in drafter_pb2.DraftSource.items()}


def source_names(draft: Draft) -> tuple[str, ...]:
    """Of each node: "lookup", "model", "grammar"."""
    return tuple(_SOURCES[source] for source in draft.sources)


class Drafting:
    def __init__(self, drafters: ReplicaSet[DraftItem, Draft], bounds: ModelBounds, costs: CostSource) -> None:
        self._drafters = drafters
        self._bounds = bounds
        self._costs = costs

    def prepare(self, session: Session) -> None:
        """Has the session keep the target's rows from now on, where a drafter reads them."""
        if session.features is not None or session.request.mode is Mode.PLAIN:
            return
        if any(replica.description.reads_features for replica in self._drafters.replicas):
            session.features = Features(self._bounds.row_bytes)

    async def draft(self, session: Session) -> Draft:
        """A tree below the session's last token; an empty one where there is nothing sensible to be had."""
        session.begin_draft()
        if session.request.mode is Mode.PLAIN or (replica := self._find(session)) is None:
            return NO_DRAFT
        policy = self._policy(session, replica)
        if policy is None or self._is_too_early(session, replica) or not session.drafting.may_draft():
            return NO_DRAFT
        if session.lever is not None:
            policy = session.lever.refine(policy)
        try:
            with span("draft", max_nodes=policy.max_nodes):
                draft = await self._ask(session, replica, policy)
        except FAULTS as fault:
            if not session.drafter.gives_up_shared(fault):
                replica.blame(fault)
                session.drafting.failed()
            session.leave_drafter()
            return NO_DRAFT
        session.drafting.succeeded()
        session.draft_sources = source_names(draft)
        if session.lever is not None:
            session.lever.drafted(draft, policy)
        session.statistics.add_draft(draft.tree, session.draft_sources)
        return draft

    def _find(self, session: Session) -> Replica[DraftItem, Draft] | None:
        seat = session.drafter
        if seat.replica is not None and not seat.replica.alive:
            session.leave_drafter()
        return seat.replica or self._drafters.try_pick(avoid=seat.last, ids=session.shared_ids)

    def _is_too_early(self, session: Session, replica: Replica[DraftItem, Draft]) -> bool:
        """In the first round, where the row before the prompt's last token is not there yet: lookup finds next to
        nothing behind the opening of an answer, and the first token would wait for it."""
        if session.features is None or not replica.description.reads_features or session.request.grammar is not None:
            return False
        return session.statistics.rounds == 0 and not session.features.reach(session.mark.length)

    def _policy(self, session: Session, replica: Replica[DraftItem, Draft]) -> DraftPolicy | None:
        length = session.mark.length
        room = DraftRoom(
            max_nodes=session.request.max_nodes,
            max_depth=session.request.max_depth,
            min_gain=session.request.min_gain,
            left=session.left,
            context=self._bounds.max_context - length,
            rows=self._bounds.max_rows - self._bounds.prompt_chunk_tokens,
            drafter=replica.description,
            drafter_context=replica.description.max_context - length,
        )
        if session.lever is not None:
            return draft_policy(Mode.LEVER, room, self._costs_now(session, replica))
        mode = session.request.mode
        return draft_policy(Mode.TREE if mode is Mode.LEVER else mode, room)

    def _costs_now(self, session: Session, replica: Replica[DraftItem, Draft]) -> DraftCosts | None:
        request = session.request
        rows = 1 + min(request.max_nodes, replica.description.max_nodes)
        return self._costs.costs(
            CostQuery(request.objective, session.mark.length, rows, STEP_ROWS, replica.description)
        )

    async def _ask(self, session: Session, replica: Replica[DraftItem, Draft], policy: DraftPolicy) -> Draft:
        seat, request = session.drafter, session.request
        if seat.replica is None:
            seat.take(replica)
            await session.begin(seat)
        append, hidden = session.history[seat.known.length :], self._hidden(session, replica)
        item = DraftItem(
            seat.update(append, policy.max_nodes),
            policy,
            request.sampling,
            request.noise,
            hidden,
            constraint=conditions.constraint(request, self._bounds),
            past=conditions.past(session),
        )
        read = max(len(append), len(hidden) // self._bounds.row_bytes)
        is_prompt = read > self._bounds.prompt_chunk_tokens
        served = await replica.submit(item, read + policy.max_nodes, is_prompt)
        session.account("drafter", served)
        check_draft(served.value, policy, self._bounds.vocab_size)
        seat.advance(session.mark)
        if session.features is not None and hidden:
            session.features.gave(session.mark.length)
        return served.value

    def _hidden(self, session: Session, replica: Replica[DraftItem, Draft]) -> bytes:
        if session.features is None or not replica.description.reads_features:
            return b""
        return session.features.before(session.mark.length)
