"""The drafter's items and results."""

from __future__ import annotations

from dataclasses import dataclass

from hetspec.decoding.constraint import Constraint, Past
from hetspec.decoding.sampling import NoiseKey, Sampling
from hetspec.decoding.tree import TokenTree
from hetspec.drafting.costs import DraftCosts
from hetspec.drafting.stop_rule import StopKind, StopRule
from hetspec.rpc.messages import decoding
from hetspec.rpc.messages.draft_costs import costs_from_pb, costs_to_pb
from hetspec.rpc.messages.task import SessionUpdate
from hetspec.v1 import drafter_pb2


@dataclass(frozen=True, slots=True)
class DraftPolicy:
    """costs: what the tree is sized by, within the other bounds; None: it is as large as they allow. stop: where the
    draft model ends chains before these bounds do."""

    max_nodes: int
    max_depth: int
    width: int
    sources: tuple[int, ...]  # drafter_pb2.DraftSource
    min_gain: float = 0.0
    costs: DraftCosts | None = None
    stop: StopRule | None = None

    def to_pb(self) -> drafter_pb2.DraftPolicy:
        return drafter_pb2.DraftPolicy(
            max_nodes=self.max_nodes,
            max_depth=self.max_depth,
            width=self.width,
            sources=[drafter_pb2.DraftSource.ValueType(s) for s in self.sources],
            min_gain=self.min_gain,
            costs=None if self.costs is None else costs_to_pb(self.costs),
            stop=None if self.stop is None else _stop_to_pb(self.stop),
        )

    @classmethod
    def from_pb(cls, pb: drafter_pb2.DraftPolicy) -> DraftPolicy:
        sources = tuple(int(s) for s in pb.sources)
        costs = costs_from_pb(pb.costs) if pb.HasField("costs") else None
        stop = _stop_from_pb(pb.stop) if pb.HasField("stop") else None
        return cls(pb.max_nodes, pb.max_depth, pb.width, sources, pb.min_gain, costs, stop)


def _stop_to_pb(stop: StopRule) -> drafter_pb2.StopRule:
    return drafter_pb2.StopRule(kind=drafter_pb2.StopKind.ValueType(stop.kind), threshold=stop.threshold)


def _stop_from_pb(pb: drafter_pb2.StopRule) -> StopRule:
    known = [int(kind) for kind in StopKind]
    if pb.kind not in known:
        raise ValueError(f"policy.stop.kind = {pb.kind}, must be one of {known}")
    return StopRule(StopKind(pb.kind), pb.threshold)


@dataclass(frozen=True, slots=True)
class LookAhead:
    """Asks for the session's last tree to be grown on below the likeliest `outcomes` of the batch of it that begins at
    node `since` (drafter.proto tells what that means)."""

    outcomes: int
    since: int

    def to_pb(self) -> drafter_pb2.LookAhead:
        return drafter_pb2.LookAhead(outcomes=self.outcomes, since=self.since)

    @classmethod
    def from_pb(cls, pb: drafter_pb2.LookAhead) -> LookAhead:
        return cls(pb.outcomes, pb.since)


@dataclass(frozen=True, slots=True)
class DraftItem:
    update: SessionUpdate
    policy: DraftPolicy
    sampling: Sampling
    noise: NoiseKey
    hidden: bytes = b""
    constraint: Constraint = Constraint()
    past: Past = Past()
    look_ahead: LookAhead | None = None  # None: a new tree

    def to_pb(self) -> drafter_pb2.DraftItem:
        return drafter_pb2.DraftItem(
            update=self.update.to_pb(),
            hidden=self.hidden,
            policy=self.policy.to_pb(),
            sampling=decoding.sampling_to_pb(self.sampling),
            noise=decoding.noise_to_pb(self.noise),
            constraint=decoding.constraint_to_pb(self.constraint),
            past=decoding.past_to_pb(self.past),
            look_ahead=None if self.look_ahead is None else self.look_ahead.to_pb(),
        )

    @classmethod
    def from_pb(cls, pb: drafter_pb2.DraftItem) -> DraftItem:
        return cls(
            SessionUpdate.from_pb(pb.update),
            DraftPolicy.from_pb(pb.policy),
            decoding.sampling_from_pb(pb.sampling),
            decoding.noise_from_pb(pb.noise),
            pb.hidden,
            decoding.constraint_from_pb(pb.constraint),
            decoding.past_from_pb(pb.past),
            LookAhead.from_pb(pb.look_ahead) if pb.HasField("look_ahead") else None,
        )


@dataclass(frozen=True, slots=True)
class Draft:
    """A drafted tree; probabilities, the draft's own, sources and entropies are one a node. spent: on steps of the
    draft model, by the policy's costs. entropies: in nats, of the draft model's distribution that proposed the node, as
    the request asks for it and before the noise; 0 for what another source proposed."""

    tree: TokenTree = TokenTree()
    probabilities: tuple[float, ...] = ()
    sources: tuple[int, ...] = ()
    spent: int = 0
    entropies: tuple[float, ...] = ()

    def to_pb(self) -> drafter_pb2.DraftItemResult:
        return drafter_pb2.DraftItemResult(
            tree=decoding.tree_to_pb(self.tree),
            probabilities=self.probabilities,
            sources=[drafter_pb2.DraftSource.ValueType(s) for s in self.sources],
            spent=self.spent,
            entropies=self.entropies,
        )

    @classmethod
    def from_pb(cls, pb: drafter_pb2.DraftItemResult) -> Draft:
        sources = tuple(int(s) for s in pb.sources)
        probabilities, entropies = tuple(pb.probabilities), tuple(pb.entropies)
        return cls(decoding.tree_from_pb(pb.tree), probabilities, sources, pb.spent, entropies)
