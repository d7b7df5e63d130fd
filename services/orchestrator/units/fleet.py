"""Every unit the orchestrator works with."""

from __future__ import annotations

from functools import partial
from typing import Any

from hetspec.hardware.platform import Role
from hetspec.rpc.channel import MESSAGE_LIMIT_BYTES
from hetspec.rpc.contracts import DRAFT, PRE_VERIFY, PRE_WALK, VERIFY, WALK
from hetspec.rpc.tls import RpcTls
from hetspec.v1 import drafter_pb2, sampler_pb2, verifier_pb2
from orchestrator.clock.world import World
from orchestrator.policies.batching import PassLimits
from orchestrator.units.batcher import Batcher
from orchestrator.units.emulated_batcher import EmulatedBatcher
from orchestrator.units.metrics import UnitsMetrics
from orchestrator.units.replica import MakeBatcher, Replica
from orchestrator.units.replica_set import ReplicaSet
from orchestrator.units.settings import Addresses, FleetSettings

_MAX_DRAFTER_PROMPT_TOKENS = 1024
SCORED_ROWS = 64  # of prompts, in one sampler task: the walks beside them wait no longer than for these


class Fleet:
    def __init__(
        self,
        addresses: Addresses,
        settings: FleetSettings,
        prompt_chunk_tokens: int,
        tls: RpcTls | None,
        metrics: UnitsMetrics,
        world: World | None = None,
    ) -> None:
        """world: the units play its devices."""
        verifier_limits = partial(_verifier_limits, chunk_tokens=prompt_chunk_tokens)
        self.verifiers = ReplicaSet(
            VERIFY,
            addresses.verifier,
            verifier_limits,
            settings.verifier,
            tls,
            settings.prefixes,
            metrics.of("verifier"),
            _batchers(world, Role.VERIFIER),
        )
        self.samplers = ReplicaSet(
            WALK,
            addresses.sampler,
            _sampler_limits,
            settings.sampler,
            tls,
            metrics=metrics.of("sampler"),
            batchers=_batchers(world, Role.SAMPLER),
        )
        self.drafters = ReplicaSet(
            DRAFT,
            addresses.drafter,
            _drafter_limits,
            settings.drafter,
            tls,
            settings.prefixes,
            metrics.of("drafter"),
            _batchers(world, Role.DRAFTER),
        )
        self.pre_verifiers = ReplicaSet(
            PRE_VERIFY,
            self._holders,
            verifier_limits,
            settings.drafter,
            tls,
            settings.prefixes,
            metrics.of("pre_verifier"),
            _batchers(world, Role.PRE_VERIFIER),
        )
        self._world = world
        self.pre_samplers = self.samplers
        """Choose by what was pre-verified; in an emulated world that is the drafter's work, whoever does it here."""
        if world is not None:
            self.pre_samplers = ReplicaSet(
                PRE_WALK,
                self._pre_choosers,
                _sampler_limits,
                settings.sampler,
                tls,
                metrics=metrics.of("pre_sampler"),
                batchers=_batchers(world, Role.PRE_SAMPLER),
            )
            self.drafters.withholds = self._is_incomplete
            self.samplers.leads(self.pre_samplers)
            self.pre_verifiers.leads(self.pre_samplers)
        self.verifiers.leads(self.pre_verifiers)
        self.drafters.leads(self.pre_verifiers)

    def start(self) -> None:
        for replicas in self._all:
            replicas.start()

    async def close(self) -> None:
        for replicas in self._all:
            await replicas.close()

    def serve(self, fingerprint: str) -> None:
        """From now on only units that serve this checkpoint will do; a drafter may serve any."""
        for replicas in (self.verifiers, self.samplers, self.pre_verifiers, self.pre_samplers):
            replicas.fingerprint = fingerprint
        self.pre_verifiers.look_again()

    def problem(self) -> str | None:
        """What keeps the required units from serving together; None when they can."""
        verifier: verifier_pb2.VerifierDescription | None = self.verifiers.description
        sampler: sampler_pb2.SamplerDescription | None = self.samplers.description
        if verifier is None or sampler is None:
            return _absence(self.verifiers if verifier is None else self.samplers)
        if verifier.identity.precision != sampler.identity.precision:
            return f"the verifier runs {verifier.identity.precision}, the sampler {sampler.identity.precision}"
        return None

    def forget_prefixes(self) -> None:
        for replicas in (self.verifiers, self.drafters, self.pre_verifiers):
            for replica in replicas.replicas:
                replica.prefixes.evict_all("idle")

    def has(self, instance: str) -> bool:
        """Whether this incarnation of a unit is there."""
        return any(replicas.has(instance) for replicas in self._all)

    def of(self, unit: str) -> ReplicaSet[Any, Any]:
        """unit: "verifier", "drafter", "sampler", "pre_verifier", "pre_sampler"."""
        return next(replicas for replicas in self._all if replicas.unit == unit)

    @property
    def _all(self) -> tuple[ReplicaSet[Any, Any], ...]:
        required = (self.verifiers, self.samplers, self.drafters, self.pre_verifiers)
        return required if self.pre_samplers is self.samplers else (*required, self.pre_samplers)

    async def _pre_choosers(self) -> set[str]:
        """Addresses of the samplers, once a drafter pre-verifies."""
        return {replica.address for replica in self.samplers.replicas} if self.pre_verifiers.replicas else set()

    async def _holders(self) -> set[str]:
        """Addresses of the drafters that check."""
        return {replica.address for replica in self.drafters.reached if self._checks(replica)}

    def _checks(self, drafter: Replica[Any, Any]) -> bool:
        """Whether it holds the target; none does where that lives in flash, which a drafter has as little memory for as
        a verifier, or where the emulated device of the drafter could not hold it."""
        if self._world is not None:
            is_possible = self._world.hardware.pre_verifies
        else:
            is_possible = not any(_streams(replica.description) for replica in self.verifiers.replicas)
        return is_possible and bool(drafter.description.holds_target)

    def _is_incomplete(self, drafter: Replica[Any, Any]) -> bool:
        """Whether it is about to be found as a pre-verifier, too. In an emulated world it takes no session before: how
        an answer is drafted must not depend on what was found first."""
        if not self._checks(drafter):
            return False
        addresses = {replica.address for replica in self.pre_verifiers.reached}
        return drafter.address not in addresses or not self.pre_samplers.reached


def _batchers(world: World | None, role: Role) -> MakeBatcher:
    return Batcher if world is None else partial(EmulatedBatcher, world=world, role=role)


def _streams(verifier: verifier_pb2.VerifierDescription) -> bool:
    return verifier.layers_resident < verifier.layers


def _absence(replicas: ReplicaSet[Any, Any]) -> str:
    if strangers := replicas.strangers:
        return f"the {replicas.unit} at {strangers[0].address} serves another checkpoint than the weight store"
    return f"no {replicas.unit} is ready"


def _verifier_limits(description: verifier_pb2.VerifierDescription, chunk_tokens: int) -> PassLimits:
    return PassLimits(max_rows=description.max_rows, max_prompt_rows=chunk_tokens)


def _sampler_limits(description: sampler_pb2.SamplerDescription) -> PassLimits:
    rows = MESSAGE_LIMIT_BYTES // 2 // (4 * max(1, description.hidden_size))
    return PassLimits(max_rows=rows, max_prompt_rows=SCORED_ROWS)


def _drafter_limits(description: drafter_pb2.DrafterDescription) -> PassLimits:
    return PassLimits(max_rows=description.max_context, max_prompt_rows=_MAX_DRAFTER_PROMPT_TOKENS)
