"""An orchestrator's engine in an emulated world, whose target is a record and whose drafter is in this process."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import cast

from drafter.engine import DrafterEngine
from hetspec.decoding.sampling import NoiseKey, Sampling
from hetspec.hardware.cost_as import CostAs, RealShapes
from hetspec.hardware.profile import Described
from hetspec.rpc.messages import Walk
from laboratory.errors import StudyError
from laboratory.known_draft import KnownDraftModel
from laboratory.local_drafter import drafters_of
from laboratory.outcome import Outcome
from laboratory.policy import Policy
from laboratory.record import Record
from laboratory.works import Done, NotingHardware
from orchestrator.clock.pace import Unpaced
from orchestrator.clock.world import World
from orchestrator.engine.choosing import Choosing
from orchestrator.engine.drafting import Drafting
from orchestrator.engine.emulated_costs import EmulatedCosts
from orchestrator.engine.generation import Generation
from orchestrator.engine.model import ModelBounds
from orchestrator.engine.output import Output
from orchestrator.engine.pipeline import Pipeline
from orchestrator.engine.pre_verifying import PreVerifying
from orchestrator.engine.pumped import PumpedGeneration
from orchestrator.engine.recorded import RecordedAnswer, RecordedChoosing, RecordedPreVerifying, RecordedVerifying
from orchestrator.engine.request import Emission, EmittedToken, FinishReason, GenerationRequest
from orchestrator.engine.round import Decoding, Steps
from orchestrator.engine.scoring import Scoring
from orchestrator.engine.session import Digests, Session
from orchestrator.engine.verifying import Verifying
from orchestrator.policies.control import control_of
from orchestrator.policies.edc import EdcTables
from orchestrator.policies.mode import Part

MAX_ROWS = 512  # of a target's pass, as the verifier's default
CHUNK_TOKENS = 256  # of a prompt, as the orchestrator's default


class Rig:
    """Answers one prompt at a time, each in a world that remembers nothing. Made inside an event loop."""

    def __init__(
        self,
        record: Record,
        draft: KnownDraftModel,
        shapes: RealShapes,
        hardware: Described,
        cost_as: CostAs | None,
        chunk_tokens: int = CHUNK_TOKENS,
    ) -> None:
        """shapes: of the recorded target and the draft. Raises StudyError where the hardware cannot run the models."""
        self._record = record
        self._hardware = hardware_of(shapes, hardware, cost_as)
        self._world = World(self._hardware, Unpaced())
        self._bounds = _bounds(record, chunk_tokens)
        self._steps = self._make_steps(draft)
        self._shared = defaultdict[str, EdcTables](EdcTables)  # by policy

    async def answer(self, place: int, policy: Policy) -> Done:
        """The record's answer at this place, decoded so."""
        self._hardware.note()
        request = self._request(place, policy)
        session = Session(f"{policy.name}/{place}", request, Digests("", ""), self._world)
        inner = Generation(
            session, self._steps, _TokenCount(request, self._record.about.end_ids), self._rounds(session, policy)
        )
        generation = PumpedGeneration(inner, self._world, None, lambda tokens: 0)
        async for _ in generation:
            pass
        return Done(Outcome.of(generation.statistics), self._hardware.works)

    def _rounds(self, session: Session, policy: Policy) -> Decoding | None:
        request = session.request
        if Part.LOOK_AHEAD not in request.parts:
            return None
        tables = self._shared[policy.name] if request.shares_edc else EdcTables()
        control = control_of(request.parts, request.outcomes, tables, request.fits_tvc, request.objective)
        session.statistics.ahead = control.report
        return Pipeline(session, self._steps, control)

    def _request(self, place: int, policy: Policy) -> GenerationRequest:
        about = self._record.about
        return GenerationRequest(
            request_id=str(place),
            prompt_ids=self._record.answers[place].prompt,
            sampling=Sampling(about.temperature),
            noise=NoiseKey(about.seed + place),
            max_tokens=about.max_tokens,
            mode=policy.mode,
            max_nodes=policy.max_nodes,
            max_depth=policy.max_depth,
            objective=policy.objective,
            disabled=policy.disabled,
            outcomes=policy.outcomes,
            drafting=policy.drafting,
            shares_edc=policy.shares_edc,
            fits_tvc=policy.fits_tvc,
            reuse_prefix=False,
        )

    def _make_steps(self, draft: KnownDraftModel) -> Steps:
        recorded = {one.prompt: RecordedAnswer(one.tokens, one.exact_rows) for one in self._record.answers}
        model, bounds, world = self._record.about.model, self._bounds, self._world
        drafter = DrafterEngine(model.vocab_size, draft)
        drafting = Drafting(drafters_of(drafter, draft.shape, world), bounds, EmulatedCosts(world.hardware))
        # What a record answers with does all of the engine's steps that need no logits.
        verifying = cast("Verifying", RecordedVerifying(recorded, world, bounds, model.n_layers))
        choosing = cast("Choosing", RecordedChoosing(recorded, world, bounds))
        checks = cast("PreVerifying", RecordedPreVerifying(recorded, world, bounds, model.n_layers))
        return Steps(drafting, verifying, choosing, Scoring(verifying, choosing, bounds), checks)


def hardware_of(shapes: RealShapes, profile: Described, cost_as: CostAs | None) -> NotingHardware:
    """Raises StudyError where it cannot run the models."""
    hardware = NotingHardware(profile, cost_as)
    hardware.note()
    try:
        hardware.run(shapes)
    except ValueError as error:
        raise StudyError(str(error)) from error
    return hardware


class _TokenCount(Output):
    """Ends where the record ends. Nobody reads the text."""

    def __init__(self, request: GenerationRequest, end_ids: Sequence[int]) -> None:
        self._left_tokens = request.max_tokens
        self._ends = frozenset(end_ids)

    def push(self, walk: Walk) -> Emission:
        self._left_tokens -= len(walk.tokens)
        reason: FinishReason | None = "length" if self._left_tokens <= 0 else None
        if walk.tokens[-1] in self._ends:
            reason = "stop"
        return Emission("", tuple([EmittedToken(token, None) for token in walk.tokens]), reason)


def _bounds(record: Record, chunk_tokens: int) -> ModelBounds:
    model = record.about.model
    return ModelBounds(
        max_context=model.max_context,
        max_rows=MAX_ROWS,
        hidden_size=model.hidden_size,
        vocab_size=model.vocab_size,
        end_ids=tuple(record.about.end_ids),
        prompt_chunk_tokens=chunk_tokens,
    )
