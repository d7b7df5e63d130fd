"""Where requests become tokens: the units, the model they serve together, and a Generation for each request."""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
from functools import partial

from prometheus_client import CollectorRegistry

from hetspec.decoding.constraint import Grammar
from hetspec.hardware.cost_as import RealShapes
from hetspec.model.config import ModelConfig
from hetspec.rpc.logs import log_event
from hetspec.text.tokenizer import TextModel
from hetspec.v1 import verifier_pb2
from orchestrator.clock.clock import Clock, HostClock
from orchestrator.clock.world import World
from orchestrator.engine.choosing import Choosing
from orchestrator.engine.drafting import Drafting
from orchestrator.engine.emulated_costs import EmulatedCosts
from orchestrator.engine.errors import ContextTooLong, UnitsUnavailable
from orchestrator.engine.generation import Generation
from orchestrator.engine.grammar_check import GrammarCheck
from orchestrator.engine.host_costs import HostCosts
from orchestrator.engine.model import EngineDescription, ModelBounds
from orchestrator.engine.output import Output
from orchestrator.engine.pipeline import Pipeline
from orchestrator.engine.pre_verifying import PreVerifying
from orchestrator.engine.pumped import PumpedGeneration
from orchestrator.engine.recovery import Recovery
from orchestrator.engine.request import GenerationRequest
from orchestrator.engine.round import Steps
from orchestrator.engine.scoring import Scoring
from orchestrator.engine.session import Digests, Session
from orchestrator.engine.settings import EngineSettings
from orchestrator.engine.verifying import Verifying
from orchestrator.policies.control import control_of
from orchestrator.policies.costs import CostSource
from orchestrator.policies.edc import EdcTables
from orchestrator.policies.mode import Part
from orchestrator.timeline.timeline import Timeline
from orchestrator.units.fleet import Fleet
from orchestrator.units.metrics import UnitsMetrics
from orchestrator.units.settings import Addresses
from orchestrator.units.watch import Watch
from orchestrator.units.weight_store import Checkpoint, fetch_checkpoint

__all__ = ["Engine", "EngineDescription", "Generation", "PumpedGeneration"]


class Engine:
    """`start` returns at once: units are found, and found again when lost, from then on."""

    def __init__(
        self,
        addresses: Addresses,
        settings: EngineSettings | None = None,
        registry: CollectorRegistry | None = None,
    ) -> None:
        """registry: takes the metrics of the engine's units."""
        self._addresses = addresses
        self._settings = settings or EngineSettings()
        self.world = self._settings.world.make() if self._settings.world else None
        self._clock: Clock = self.world or HostClock()
        self._fleet = Fleet(
            addresses,
            self._settings.fleet,
            self._settings.prompt_chunk_tokens,
            self._settings.tls,
            UnitsMetrics(registry or CollectorRegistry()),
            self.world,
        )
        self.watch = Watch(self._fleet, addresses.weight_store, self._settings.tls)
        self._recovery = Recovery(self._settings.max_rebuilds, self._fleet.has)
        self._costs: CostSource = HostCosts(self._fleet.verifiers)
        if self.world is not None:
            self._costs = EmulatedCosts(self.world.hardware)
        self._checkpoint: Checkpoint | None = None
        self.problem: str | None = None  # why the models that run can never be priced
        self._fetching: asyncio.Task[None] | None = None
        self._grammar_check: GrammarCheck | None = None
        self.edc = EdcTables()  # shared by requests that want so
        # Names are unique among all orchestrators that may ever share a unit, restarts of this one included.
        self._prefix = secrets.token_hex(4)
        self._numbers = itertools.count(1)

    async def start(self) -> None:
        self._fleet.start()
        self._fetching = asyncio.create_task(self._fetch_checkpoint())

    async def close(self) -> None:
        if self._fetching is not None:
            self._fetching.cancel()
        if self._grammar_check is not None:
            await self._grammar_check.close()
        await self._fleet.close()

    def ready(self) -> dict[str, bool]:
        """Of what a request cannot do without. The drafter is among it in an emulated world alone, where times must not
        depend on when it is found."""
        checkpoint = self._checkpoint
        mismatch = checkpoint is not None and (self.problem or self._fleet.problem()) is not None
        verifiers, samplers = bool(self._fleet.verifiers.replicas), bool(self._fleet.samplers.replicas)
        if verifiers and samplers and mismatch:
            verifiers = samplers = False
        told = {"weight_store": checkpoint is not None, "verifier": verifiers, "sampler": samplers}
        return told if self.world is None else told | {"drafter": bool(self._fleet.drafters.replicas)}

    def replicas(self) -> dict[str, int]:
        """How many of each unit are there."""
        fleet = self._fleet
        return {each.unit: len(each.replicas) for each in (fleet.verifiers, fleet.samplers, fleet.drafters)}

    @property
    def judges_acceptance(self) -> bool:
        """Whether a drafter has an acceptance head."""
        return any(replica.description.judges_acceptance for replica in self._fleet.drafters.replicas)

    @property
    def text(self) -> TextModel:
        """Raises UnitsUnavailable until the weight store has answered."""
        return self._known_checkpoint().text

    @property
    def description(self) -> EngineDescription:
        """Raises UnitsUnavailable while a required unit is missing."""
        checkpoint = self._known_checkpoint()
        if (problem := self.problem or self._fleet.problem()) is not None:
            raise UnitsUnavailable(problem)
        verifier, sampler = self._fleet.verifiers.description, self._fleet.samplers.description
        assert verifier is not None
        assert sampler is not None
        max_context = self._max_context(verifier)
        return EngineDescription(
            model=checkpoint.name,
            fingerprint=checkpoint.fingerprint,
            precision=verifier.identity.precision,
            max_context=max_context,
            vocab_size=verifier.vocab_size,
            digests={"verifier": verifier.identity.digest, "sampler": sampler.identity.digest},
            measured=self.world.hardware.profile.name if self.world and max_context < verifier.max_context else None,
        )

    async def check_grammar(self, grammar: Grammar) -> None:
        """Raises GrammarError where no answer could follow it, UnitsUnavailable."""
        if self._grammar_check is None:
            self._grammar_check = GrammarCheck(self.text.spec, self.description.vocab_size)
        await self._grammar_check.check(grammar)

    def generate(self, request: GenerationRequest) -> Generation | PumpedGeneration:
        """Raises UnitsUnavailable and ContextTooLong before any unit works."""
        description = self.description
        prompt, output = len(request.prompt_ids), request.max_tokens
        if prompt + output > description.max_context:
            raise ContextTooLong(f"{prompt} prompt tokens and {output} to come do not fit {description.context}")
        digests = Digests(description.digests["verifier"], description.digests["sampler"])
        name = f"{self._prefix}-{next(self._numbers)}/{request.request_id}"
        timeline = Timeline(self.world.now_ns if self.world else None, self._settings.timeline_tasks)
        session = Session(name, request, digests, self._clock, timeline)
        generation = self._generation(session, request)
        if (world := self.world) is None:
            return generation
        chunk = self._bounds().prompt_chunk_tokens
        plain_ns = partial(world.hardware.pricing.plain, len(request.prompt_ids), chunk_tokens=chunk)
        return PumpedGeneration(generation, world, request.arrival, plain_ns)

    def _generation(self, session: Session, request: GenerationRequest) -> Generation:
        steps, output = self._steps(), Output(request, self.text)
        if Part.LOOK_AHEAD not in request.parts:
            return Generation(session, steps, output)
        tables = self.edc if request.shares_edc else EdcTables()
        control = control_of(request.parts, request.outcomes, tables, request.fits_tvc, request.objective)
        session.statistics.ahead = control.report
        return Generation(session, steps, output, Pipeline(session, steps, control))

    def _steps(self) -> Steps:
        bounds, fleet = self._bounds(), self._fleet
        verifying = Verifying(fleet.verifiers, bounds, self._recovery)
        choosing = Choosing(fleet.samplers, bounds, self._recovery)
        drafting = Drafting(fleet.drafters, bounds, self._costs)
        pre_verifying = PreVerifying(fleet.pre_verifiers, fleet.pre_samplers, choosing, bounds)
        return Steps(drafting, verifying, choosing, Scoring(verifying, choosing, bounds), pre_verifying)

    def _bounds(self) -> ModelBounds:
        verifier = self._fleet.verifiers.description
        assert verifier is not None
        return ModelBounds(
            max_context=self._max_context(verifier),
            max_rows=verifier.max_rows,
            hidden_size=verifier.hidden_size,
            vocab_size=verifier.vocab_size,
            end_ids=self.text.spec.end_ids,
            prompt_chunk_tokens=max(1, min(self._settings.prompt_chunk_tokens, verifier.max_rows // 2)),
        )

    def _max_context(self, verifier: verifier_pb2.VerifierDescription) -> int:
        of_model = verifier.max_context
        return of_model if self.world is None else self.world.hardware.context(of_model)

    def _known_checkpoint(self) -> Checkpoint:
        if self._checkpoint is None:
            raise UnitsUnavailable("the weight store has not answered yet")
        return self._checkpoint

    async def _fetch_checkpoint(self) -> None:
        checkpoint = await fetch_checkpoint(self._addresses.weight_store, self._settings.tls)
        if self.world is not None:
            self._price(self.world, checkpoint)
        self._fleet.serve(checkpoint.fingerprint)
        self._checkpoint = checkpoint

    def _price(self, world: World, checkpoint: Checkpoint) -> None:
        try:
            target, draft = checkpoint.config_json, checkpoint.draft_config_json
            draft_config = ModelConfig.from_json(draft) if draft else None
            world.hardware.run(RealShapes.of(ModelConfig.from_json(target), draft_config))
        except ValueError as error:
            self.problem = str(error)
            log_event("the models cannot be priced", reason=self.problem, level=logging.ERROR)
        else:
            world.when_idle(self._fleet.forget_prefixes)
            world.when_idle(self.edc.forget)
