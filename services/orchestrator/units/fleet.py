"""Every unit the orchestrator works with."""

from __future__ import annotations

from functools import partial
from typing import Any

from hetspec.rpc.channel import MESSAGE_LIMIT_BYTES
from hetspec.rpc.contracts import DRAFT, VERIFY, WALK
from hetspec.v1 import drafter_pb2, sampler_pb2, verifier_pb2
from orchestrator.policies.batching import PassLimits
from orchestrator.units.replica_set import ReplicaSet
from orchestrator.units.settings import Addresses, FleetSettings

_MAX_DRAFTER_PROMPT_TOKENS = 1024


class Fleet:
    def __init__(self, addresses: Addresses, settings: FleetSettings, prompt_chunk_tokens: int) -> None:
        verifier_limits = partial(_verifier_limits, chunk_tokens=prompt_chunk_tokens)
        self.verifiers = ReplicaSet(VERIFY, addresses.verifier, verifier_limits, settings.verifier)
        self.samplers = ReplicaSet(WALK, addresses.sampler, _sampler_limits, settings.sampler)
        self.drafters = ReplicaSet(DRAFT, addresses.drafter, _drafter_limits, settings.drafter)

    def start(self) -> None:
        for replicas in self._all:
            replicas.start()

    async def close(self) -> None:
        for replicas in self._all:
            await replicas.close()

    def problem(self, fingerprint: str) -> str | None:
        """What keeps the required units from serving a checkpoint together; None when they can."""
        verifier: verifier_pb2.VerifierDescription | None = self.verifiers.description
        sampler: sampler_pb2.SamplerDescription | None = self.samplers.description
        if verifier is None or sampler is None:
            return f"no {'verifier' if verifier is None else 'sampler'} is ready"
        for unit in (verifier, sampler):
            if unit.identity.fingerprint != fingerprint:
                return f"the {unit.identity.unit} serves another checkpoint than the weight store"
        if verifier.identity.precision != sampler.identity.precision:
            return f"the verifier runs {verifier.identity.precision}, the sampler {sampler.identity.precision}"
        return None

    @property
    def _all(self) -> tuple[ReplicaSet[Any, Any], ...]:
        return (self.verifiers, self.samplers, self.drafters)


def _verifier_limits(description: verifier_pb2.VerifierDescription, chunk_tokens: int) -> PassLimits:
    return PassLimits(max_rows=description.max_rows, max_prompt_rows=chunk_tokens)


def _sampler_limits(description: sampler_pb2.SamplerDescription) -> PassLimits:
    rows = MESSAGE_LIMIT_BYTES // 2 // (4 * max(1, description.hidden_size))
    return PassLimits(max_rows=rows, max_prompt_rows=rows)


def _drafter_limits(description: drafter_pb2.DrafterDescription) -> PassLimits:
    return PassLimits(max_rows=description.max_context, max_prompt_rows=_MAX_DRAFTER_PROMPT_TOKENS)
