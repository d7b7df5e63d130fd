"""First step of a round. A drafter that is missing, fails or answers nonsense never stops a request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from hetspec.decoding.history import History
from hetspec.drafting.costs import DraftCosts
from hetspec.rpc.messages import Draft, DraftItem, DraftPolicy, LookAhead
from hetspec.telemetry.tracing import span
from hetspec.v1.drafter_pb2 import DRAFT_SOURCE_MODEL
from orchestrator.engine import conditions
from orchestrator.engine.checks import check_draft, check_look_ahead
from orchestrator.engine.features import Features
from orchestrator.engine.model import ModelBounds
from orchestrator.engine.seat import Mark
from orchestrator.engine.session import Session
from orchestrator.policies.costs import CostQuery, CostSource, RoundTook
from orchestrator.policies.drafting import STEP_ROWS, DraftRoom, draft_policy
from orchestrator.policies.mode import Mode, Objective
from orchestrator.policies.thrift import EnergyCosts
from orchestrator.timeline.task import Kind, Task
from orchestrator.units.errors import FAULTS
from orchestrator.units.replica import Replica
from orchestrator.units.replica_set import ReplicaSet


@dataclass(frozen=True, slots=True)
class Drafted:
    """policy: that the draft was asked for with; None where nobody was asked. task: that made its nodes, if any."""

    draft: Draft = Draft()
    policy: DraftPolicy | None = None
    task: Task | None = None


NOTHING = Drafted()


@dataclass(frozen=True, slots=True)
class _Place:
    """What a draft hangs below: the session's tokens, and what is foreseen of those to come. left: tokens after
    that. ids: may have grown since beyond what `mark` tells."""

    ids: History
    mark: Mark
    left: int
    foreseen: tuple[int, ...]

    @classmethod
    def of(cls, session: Session, foreseen: tuple[int, ...]) -> _Place:
        if not foreseen:
            return cls(session.history, session.mark, session.left, ())
        ids = session.history_with(foreseen)
        return cls(ids, Mark(len(ids), ids.hash), session.left - len(foreseen), foreseen)


def _as_it_is(policy: DraftPolicy) -> DraftPolicy:
    return policy


class Drafting:
    def __init__(self, drafters: ReplicaSet[DraftItem, Draft], bounds: ModelBounds, costs: CostSource) -> None:
        self._drafters = drafters
        self._bounds = bounds
        self._costs = costs

    def learn(self, session: Session, took_ns: Mapping[str, int]) -> None:
        """How long the round took that has ended, as `Statistics.host_ns` names the parts. The first one, which reads
        the prompt, is no measure, nor is one beside which others go on."""
        spent_ns = session.lever.spent if session.lever is not None else None
        if spent_ns is None or session.request.mode is not Mode.LEVER or session.statistics.rounds < 2:
            return
        parts = (took_ns.get(part, 0) for part in ("drafter", "sampler", "orchestrator"))
        self._costs.learn(RoundTook(spent_ns, *parts))

    def prepare(self, session: Session) -> None:
        """Has the session keep the target's rows from now on, where a drafter reads them."""
        if session.features is not None or session.request.mode is Mode.PLAIN:
            return
        if any(replica.description.reads_features for replica in self._drafters.replicas):
            session.features = Features(self._bounds.row_bytes)

    def has_long_to_read(self, session: Session) -> bool:
        """Whether a draft model has nothing of the session's tokens yet, and takes longer to read them than half a pass
        of the target. To wait costs what is waited; to go on without drafts costs a pass that gives one token where
        others give two or more, or all that a grammar foretells."""
        replica, length = self._find(session), session.mark.length
        if session.request.grammar is not None:
            return False
        if replica is None or DRAFT_SOURCE_MODEL not in replica.description.sources or session.drafter.known.length:
            return False
        costs = self._costs.costs(CostQuery(Objective.LATENCY, length, 1, STEP_ROWS, replica.description))
        return costs is not None and costs.draft_step.longer(length)(length) > costs.verify(1) / 2

    def energy(self, session: Session) -> EnergyCosts | None:
        """What a session's next batch would take of it."""
        replica, rows = self._find(session), 1 + session.request.max_depth
        if replica is None:
            return None
        return self._costs.energy(
            CostQuery(Objective.ENERGY, session.mark.length, rows, STEP_ROWS, replica.description)
        )

    async def draft(
        self,
        session: Session,
        foreseen: tuple[int, ...] = (),
        sized: Callable[[DraftPolicy], DraftPolicy] = _as_it_is,
    ) -> Drafted:
        """A tree below the session's last token, or below what is foreseen to follow it; an empty one where there is
        nothing sensible to be had. sized: of what may be asked for, what is."""
        if session.request.mode is Mode.PLAIN or (replica := self._find(session)) is None:
            return NOTHING
        place = _Place.of(session, foreseen)
        policy = self._policy(session, replica, place)
        if policy is None or self._is_too_early(session, replica) or not session.drafting.may_draft():
            return NOTHING
        if session.lever is not None:
            policy = session.lever.refine(policy)
        policy = session.chain_length.policy(policy, replica.description)
        policy = sized(policy)
        try:
            with span("draft", max_nodes=policy.max_nodes), session.timeline.task(Kind.DRAFT) as task:
                draft = await self._ask(session, replica, policy, place)
                task.size = f"{len(draft.tree)} nodes"
        except FAULTS as fault:
            self._failed(session, replica, fault)
            return NOTHING
        session.drafting.succeeded()
        return Drafted(draft, policy, task if draft.tree else None)

    async def look_ahead(self, session: Session, before: Draft, look: LookAhead, policy: DraftPolicy) -> Drafted | None:
        """The last draft, as it was `before`, grown on; None where it cannot be had, and the drafter is left."""
        seat, item = session.drafter, session.draft_item
        if item is None or (replica := seat.replica) is None or not replica.alive:
            return None
        update = seat.update((), len(before.tree) + policy.max_nodes)
        item = replace(item, update=update, policy=policy, hidden=b"", look_ahead=look)
        try:
            with span("look ahead", max_nodes=policy.max_nodes), session.timeline.task(Kind.LOOK_AHEAD) as task:
                served = await replica.submit(item, policy.max_nodes)
                session.account("drafter", served)
                check_look_ahead(served.value, before, policy, self._bounds.vocab_size)
                task.size = f"{len(served.value.tree) - len(before.tree)} nodes"
        except FAULTS as fault:
            self._failed(session, replica, fault)
            return None
        return Drafted(served.value, policy, task)

    def _failed(self, session: Session, replica: Replica[DraftItem, Draft], fault: Exception) -> None:
        if not session.drafter.gives_up_shared(fault):
            replica.blame(fault)
            session.drafting.failed()
        session.leave_drafter()

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

    def _policy(self, session: Session, replica: Replica[DraftItem, Draft], place: _Place) -> DraftPolicy | None:
        length = place.mark.length
        room = DraftRoom(
            max_nodes=session.request.max_nodes,
            max_depth=session.request.max_depth,
            min_gain=session.request.min_gain,
            left=place.left,
            context=self._bounds.max_context - length,
            rows=self._bounds.max_rows - self._bounds.prompt_chunk_tokens,
            drafter=replica.description,
            drafter_context=replica.description.max_context - length,
        )
        if session.lever is not None:
            return draft_policy(Mode.LEVER, room, self._costs_now(session, replica))
        mode = session.request.mode
        return draft_policy(Mode.TREE if mode in (Mode.LEVER, Mode.FULL) else mode, room)

    def _costs_now(self, session: Session, replica: Replica[DraftItem, Draft]) -> DraftCosts | None:
        request = session.request
        rows = 1 + min(request.max_nodes, replica.description.max_nodes)
        return self._costs.costs(
            CostQuery(request.objective, session.mark.length, rows, STEP_ROWS, replica.description)
        )

    async def _ask(
        self, session: Session, replica: Replica[DraftItem, Draft], policy: DraftPolicy, place: _Place
    ) -> Draft:
        seat, request = session.drafter, session.request
        if seat.replica is None:
            seat.take(replica)
            await session.begin(seat)
        length = place.mark.length
        append, hidden = place.ids[seat.known.length : length], self._hidden(session, replica, length)
        item = DraftItem(
            seat.update(append, policy.max_nodes),
            policy,
            request.sampling,
            request.noise,
            hidden,
            constraint=conditions.constraint(request, self._bounds),
            past=conditions.past(session, place.foreseen, length - len(place.foreseen)),
        )
        read = max(len(append), len(hidden) // self._bounds.row_bytes)
        is_prompt = read > self._bounds.prompt_chunk_tokens
        served = await replica.submit(item, read + policy.max_nodes, is_prompt)
        session.account("drafter", served)
        check_draft(served.value, policy, self._bounds.vocab_size)
        seat.advance(place.mark)
        session.draft_item = item
        if session.features is not None and hidden:
            session.features.gave(length)
        return served.value

    def _hidden(self, session: Session, replica: Replica[DraftItem, Draft], length: int) -> bytes:
        if session.features is None or not replica.description.reads_features:
            return b""
        return session.features.before(length)
