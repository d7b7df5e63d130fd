"""What items and results of every unit have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from hetspec.rpc.messages.errors import UnitError
from hetspec.v1 import common_pb2

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class SessionUpdate:
    """The state an item finds its session in, and how it moves on (common.proto says it field by field)."""

    session: str
    epoch: int
    committed_len: int
    committed_hash: int
    commit: tuple[int, ...] = ()
    append: tuple[int, ...] = ()
    fork_of: str = ""

    @property
    def length(self) -> int:
        """Tokens that are committed behind it."""
        return self.committed_len + len(self.append)

    def to_pb(self) -> common_pb2.SessionUpdate:
        return common_pb2.SessionUpdate(
            session=self.session,
            epoch=self.epoch,
            commit=self.commit,
            committed_len=self.committed_len,
            committed_hash=self.committed_hash,
            append=self.append,
            fork_of=self.fork_of,
        )

    @classmethod
    def from_pb(cls, pb: common_pb2.SessionUpdate) -> SessionUpdate:
        return cls(
            pb.session, pb.epoch, pb.committed_len, pb.committed_hash, tuple(pb.commit), tuple(pb.append), pb.fork_of
        )


@dataclass(frozen=True, slots=True)
class WorkTrace:
    """What a task did (common.proto); the orchestrator prices it."""

    rows_by_layer: tuple[int, ...] = ()
    kv_len_by_row: tuple[int, ...] = ()
    head_rows: int = 0
    draft_step_rows: tuple[int, ...] = ()
    weight_bytes_read: int = 0
    weight_reads: int = 0

    @property
    def rows(self) -> int:
        """Computed: through the layers, by the head, in all draft steps."""
        return max(self.rows_by_layer, default=0) or self.head_rows or sum(self.draft_step_rows)

    def to_pb(self) -> common_pb2.WorkTrace:
        return common_pb2.WorkTrace(
            rows_by_layer=self.rows_by_layer,
            kv_len_by_row=self.kv_len_by_row,
            head_rows=self.head_rows,
            draft_step_rows=self.draft_step_rows,
            weight_bytes_read=self.weight_bytes_read,
            weight_reads=self.weight_reads,
        )

    @classmethod
    def from_pb(cls, pb: common_pb2.WorkTrace) -> WorkTrace:
        return cls(
            tuple(pb.rows_by_layer),
            tuple(pb.kv_len_by_row),
            pb.head_rows,
            tuple(pb.draft_step_rows),
            pb.weight_bytes_read,
            pb.weight_reads,
        )


@dataclass(frozen=True, slots=True)
class Timing:
    """Host time of a task on its unit."""

    queue_ns: int = 0
    compute_ns: int = 0

    def to_pb(self) -> common_pb2.Timing:
        return common_pb2.Timing(queue_ns=self.queue_ns, compute_ns=self.compute_ns)

    @classmethod
    def from_pb(cls, pb: common_pb2.Timing) -> Timing:
        return cls(pb.queue_ns, pb.compute_ns)


@dataclass(frozen=True, slots=True)
class PassResult(Generic[Result]):
    """What one task came to: a result or a refusal for each of its items, in their order."""

    items: tuple[Result | UnitError, ...]
    trace: WorkTrace = WorkTrace()
    timing: Timing = Timing()  # the unit's queue fills it in
