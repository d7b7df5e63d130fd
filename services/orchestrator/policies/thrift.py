"""Asynchronous modes for little energy: how long a chain is, and what drafting ahead and checks must be worth.

To run ahead never makes a token of less work. It saves time, and with it what the platform draws however little it
does; what was drafted or checked in vain is lost.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hetspec.drafting.costs import CostCurve, DraftCosts
from hetspec.rpc.messages import DraftPolicy
from orchestrator.policies.batch_length import BatchLength


@dataclass(frozen=True, slots=True)
class EnergyCosts:
    """in_turn: of a pass and of draft steps, with what the whole platform draws meanwhile. idle: what that is during a
    step of one row. check: a pass of the target on the drafter, without what is drawn meanwhile, by its rows."""

    in_turn: DraftCosts
    idle: float
    check: CostCurve

    @property
    def step(self) -> float:
        """Of one row, without what is drawn meanwhile."""
        return self.in_turn.draft_step(1) - self.idle


@dataclass(slots=True)
class Thrift:
    """Of one session. length: what it has learned of acceptance. costs: None as long as none are known; then drafts
    are as long as may be, and nothing is drafted ahead or checked."""

    length: BatchLength
    costs: EnergyCosts | None = None

    def policy(self, base: DraftPolicy) -> DraftPolicy:
        """Of the next chain: as long as takes the least for its tokens. A tree is sized by its own costs, and where an
        algorithm ends the chain, that decides."""
        if self.costs is None or base.width > 1 or base.stop is not None:
            return base
        most = min(base.max_depth, self.costs.in_turn.verify.max_rows - 1)
        length = min(range(1, most + 1), key=self.per_token, default=base.max_depth)
        return replace(base, max_depth=length, max_nodes=min(base.max_nodes, length))

    def per_token(self, length: int) -> float:
        """Of a batch that is drafted, then verified."""
        assert self.costs is not None
        costs = self.costs.in_turn
        spent = costs.round + costs.verify(1 + length) + length * costs.draft_step(1)
        return spent / self.length.tokens(length)

    def pays_ahead(self, unverified: int) -> bool:
        """Whether to draft on behind so many drafted tokens. If they are all accepted, the verifier waits a step less
        for each token; if not, the step was in vain."""
        if (costs := self.costs) is None:
            return False
        survives = self.length.survival(unverified)
        return survives * costs.idle > (1 - survives) * costs.step

    def pays_check(self, tokens: int, next_steps: int) -> bool:
        """Of so many tokens. If it fails, the verifier does not wait for the next batch, of next_steps."""
        if (costs := self.costs) is None or tokens > costs.check.max_rows:
            return False
        fails = 1 - self.length.accepted**tokens
        return fails * next_steps * costs.idle > costs.check(tokens)
