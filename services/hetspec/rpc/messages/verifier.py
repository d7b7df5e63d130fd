"""The verifier's items and results."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from hetspec.decoding.sampling import NoiseKey
from hetspec.decoding.tree import TokenTree
from hetspec.rpc.messages.decoding import (
    Rows,
    noise_from_pb,
    noise_to_pb,
    rows_to_bytes,
    tree_from_pb,
    tree_to_pb,
)
from hetspec.rpc.messages.task import SessionUpdate
from hetspec.v1 import drafter_pb2, verifier_pb2


class HiddenRows(IntEnum):
    LAST = verifier_pb2.HIDDEN_LAST
    NONE = verifier_pb2.HIDDEN_NONE
    ALL = verifier_pb2.HIDDEN_ALL


@dataclass(frozen=True, slots=True)
class EarlyExit:
    """Nodes may leave the pass early; what is known of each: the draft's probabilities given its parent, sources as in
    drafter_pb2.DraftSource; and by what the target chooses behind it."""

    probabilities: tuple[float, ...]
    sources: tuple[int, ...]
    temperature: float = 0.0
    noise: NoiseKey = NoiseKey(0)

    def to_pb(self) -> verifier_pb2.EarlyExit:
        sources = [drafter_pb2.DraftSource.ValueType(source) for source in self.sources]
        return verifier_pb2.EarlyExit(
            probabilities=self.probabilities,
            sources=sources,
            temperature=self.temperature,
            noise=noise_to_pb(self.noise),
        )

    @classmethod
    def from_pb(cls, pb: verifier_pb2.EarlyExit) -> EarlyExit:
        sources = tuple(int(source) for source in pb.sources)
        return cls(tuple(pb.probabilities), sources, pb.temperature, noise_from_pb(pb.noise))


@dataclass(frozen=True, slots=True)
class VerifyItem:
    """early_exit None: every node goes through all layers."""

    update: SessionUpdate
    tree: TokenTree = TokenTree()
    hidden: HiddenRows = HiddenRows.LAST
    early_exit: EarlyExit | None = None

    def to_pb(self) -> verifier_pb2.VerifyItem:
        return verifier_pb2.VerifyItem(
            update=self.update.to_pb(),
            tree=tree_to_pb(self.tree),
            hidden=verifier_pb2.HiddenRows.ValueType(int(self.hidden)),
            early_exit=None if self.early_exit is None else self.early_exit.to_pb(),
        )

    @classmethod
    def from_pb(cls, pb: verifier_pb2.VerifyItem) -> VerifyItem:
        early_exit = EarlyExit.from_pb(pb.early_exit) if pb.HasField("early_exit") else None
        return cls(SessionUpdate.from_pb(pb.update), tree_from_pb(pb.tree), HiddenRows(pb.hidden), early_exit)


@dataclass(frozen=True, slots=True)
class HiddenStates:
    """A verified item's rows: little-endian float32 [rows, hidden_size] as bytes, before the final norm.

    pruned: nodes that left the pass early, ascending; they have no row.
    """

    data: bytes = b""
    rows: int = 0
    pruned: tuple[int, ...] = ()

    @classmethod
    def of(cls, rows: Rows, pruned: tuple[int, ...] = ()) -> HiddenStates:
        return cls(rows_to_bytes(rows), len(rows), pruned)

    def to_pb(self) -> verifier_pb2.VerifyItemResult:
        return verifier_pb2.VerifyItemResult(hidden=self.data, rows=self.rows, pruned=self.pruned)

    @classmethod
    def from_pb(cls, pb: verifier_pb2.VerifyItemResult) -> HiddenStates:
        return cls(pb.hidden, pb.rows, tuple(pb.pruned))
