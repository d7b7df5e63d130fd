"""The verifier's items and results."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from hetspec.decoding.tree import TokenTree
from hetspec.rpc.messages.decoding import Rows, rows_to_bytes, tree_from_pb, tree_to_pb
from hetspec.rpc.messages.task import SessionUpdate
from hetspec.v1 import verifier_pb2


class HiddenRows(IntEnum):
    LAST = verifier_pb2.HIDDEN_LAST
    NONE = verifier_pb2.HIDDEN_NONE
    ALL = verifier_pb2.HIDDEN_ALL


@dataclass(frozen=True, slots=True)
class VerifyItem:
    update: SessionUpdate
    tree: TokenTree = TokenTree()
    hidden: HiddenRows = HiddenRows.LAST

    def to_pb(self) -> verifier_pb2.VerifyItem:
        return verifier_pb2.VerifyItem(
            update=self.update.to_pb(),
            tree=tree_to_pb(self.tree),
            hidden=verifier_pb2.HiddenRows.ValueType(int(self.hidden)),
        )

    @classmethod
    def from_pb(cls, pb: verifier_pb2.VerifyItem) -> VerifyItem:
        return cls(SessionUpdate.from_pb(pb.update), tree_from_pb(pb.tree), HiddenRows(pb.hidden))


@dataclass(frozen=True, slots=True)
class HiddenStates:
    """A verified item's rows: little-endian float32 [rows, hidden_size] as bytes, before the final norm."""

    data: bytes = b""
    rows: int = 0

    @classmethod
    def of(cls, rows: Rows) -> HiddenStates:
        return cls(rows_to_bytes(rows), len(rows))

    def to_pb(self) -> verifier_pb2.VerifyItemResult:
        return verifier_pb2.VerifyItemResult(hidden=self.data, rows=self.rows)

    @classmethod
    def from_pb(cls, pb: verifier_pb2.VerifyItemResult) -> HiddenStates:
        return cls(pb.hidden, pb.rows)
