"""A session's drafting algorithm between its rounds: asked before a draft, told how long the round took after."""

from __future__ import annotations

from dataclasses import replace

from hetspec.rpc.messages import DraftPolicy
from hetspec.v1 import drafter_pb2
from orchestrator.clock.clock import Clock
from orchestrator.policies.drafting_algorithm import Drafting, drafting_algorithm


class ChainLength:
    def __init__(self, name: Drafting, seed: int, clock: Clock) -> None:
        self._algorithm = drafting_algorithm(name, seed)
        self._clock = clock
        self._since_ns: int | None = None  # the end of the round before

    def policy(self, base: DraftPolicy, drafter: drafter_pb2.DrafterDescription) -> DraftPolicy:
        """base: as long as may be. A rule that the drafter cannot judge by is left out."""
        policy = self._algorithm.policy(base)
        if policy.stop is not None and policy.stop.needs_acceptance and not drafter.judges_acceptance:
            return replace(policy, stop=None)
        return policy

    def round_ended(self, policy: DraftPolicy | None, drafted: int, accepted: int) -> None:
        """policy: that its draft was made by; None: nobody was asked for one. A first round is left out: its time is
        the prompt's."""
        begin_ns, self._since_ns = self._since_ns, self._clock.now_ns()
        if policy is not None and begin_ns is not None:
            self._algorithm.learn(policy, drafted, accepted, self._since_ns - begin_ns)
