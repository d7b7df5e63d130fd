"""The drafter's items and results."""

from __future__ import annotations

from dataclasses import dataclass

from hetspec.decoding.constraint import Constraint, Past
from hetspec.decoding.sampling import NoiseKey, Sampling
from hetspec.decoding.tree import TokenTree
from hetspec.drafting.costs import DraftCosts
from hetspec.rpc.messages import decoding
from hetspec.rpc.messages.draft_costs import costs_from_pb, costs_to_pb
from hetspec.rpc.messages.task import SessionUpdate
from hetspec.v1 import drafter_pb2


@dataclass(frozen=True, slots=True)
class DraftPolicy:
    """costs: what the tree is sized by, within the other bounds; None: it is as large as they allow."""

    max_nodes: int
    max_depth: int
    width: int
    sources: tuple[int, ...]  # drafter_pb2.DraftSource
    min_gain: float = 0.0
    costs: DraftCosts | None = None

    def to_pb(self) -> drafter_pb2.DraftPolicy:
        return drafter_pb2.DraftPolicy(
            max_nodes=self.max_nodes,
            max_depth=self.max_depth,
            width=self.width,
            sources=[drafter_pb2.DraftSource.ValueType(s) for s in self.sources],
            min_gain=self.min_gain,
            costs=None if self.costs is None else costs_to_pb(self.costs),
        )

    @classmethod
    def from_pb(cls, pb: drafter_pb2.DraftPolicy) -> DraftPolicy:
        sources = tuple(int(s) for s in pb.sources)
        costs = costs_from_pb(pb.costs) if pb.HasField("costs") else None
        return cls(pb.max_nodes, pb.max_depth, pb.width, sources, pb.min_gain, costs)


@dataclass(frozen=True, slots=True)
class DraftItem:
    update: SessionUpdate
    policy: DraftPolicy
    sampling: Sampling
    noise: NoiseKey
    hidden: bytes = b""
    constraint: Constraint = Constraint()
    past: Past = Past()

    def to_pb(self) -> drafter_pb2.DraftItem:
        return drafter_pb2.DraftItem(
            update=self.update.to_pb(),
            hidden=self.hidden,
            policy=self.policy.to_pb(),
            sampling=decoding.sampling_to_pb(self.sampling),
            noise=decoding.noise_to_pb(self.noise),
            constraint=decoding.constraint_to_pb(self.constraint),
            past=decoding.past_to_pb(self.past),
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
        )


@dataclass(frozen=True, slots=True)
class Draft:
    """A drafted tree; probabilities, the draft's own, and sources are one a node. spent: on steps of the draft model,
    by the policy's costs."""

    tree: TokenTree = TokenTree()
    probabilities: tuple[float, ...] = ()
    sources: tuple[int, ...] = ()
    spent: int = 0

    def to_pb(self) -> drafter_pb2.DraftItemResult:
        return drafter_pb2.DraftItemResult(
            tree=decoding.tree_to_pb(self.tree),
            probabilities=self.probabilities,
            sources=[drafter_pb2.DraftSource.ValueType(s) for s in self.sources],
            spent=self.spent,
        )

    @classmethod
    def from_pb(cls, pb: drafter_pb2.DraftItemResult) -> Draft:
        sources = tuple(int(s) for s in pb.sources)
        return cls(decoding.tree_from_pb(pb.tree), tuple(pb.probabilities), sources, pb.spent)
