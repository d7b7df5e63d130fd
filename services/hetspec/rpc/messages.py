"""The records that travel between the orchestrator and the units, as plain typed data.

Protobuf is met here and nowhere further in: `to_pb` and `from_pb` on each record, servicers and unit clients call them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from hetspec.decoding.sampling import NoiseKey, Sampling
from hetspec.decoding.tree import TokenTree
from hetspec.v1 import common_pb2, drafter_pb2, sampler_pb2, verifier_pb2

Rows = NDArray[np.float32]  # [rows, hidden_size]
Result = TypeVar("Result")


class ErrorCode(IntEnum):
    SESSION_LOST = common_pb2.SESSION_LOST
    CANCELLED = common_pb2.CANCELLED
    DEADLINE_EXCEEDED = common_pb2.DEADLINE_EXCEEDED
    INVALID = common_pb2.INVALID
    EXHAUSTED = common_pb2.EXHAUSTED
    OUT_OF_CREDITS = common_pb2.OUT_OF_CREDITS
    WEIGHTS_UNAVAILABLE = common_pb2.WEIGHTS_UNAVAILABLE
    INTERNAL = common_pb2.INTERNAL


class UnitError(Exception):
    """A unit's typed refusal, of a task or of one of its items."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(f"{code.name}: {message}")
        self.code = code
        self.message = message

    def to_pb(self) -> common_pb2.Error:
        return common_pb2.Error(code=common_pb2.ErrorCode.ValueType(int(self.code)), message=self.message)

    @classmethod
    def from_pb(cls, pb: common_pb2.Error) -> UnitError:
        return cls(ErrorCode(pb.code), pb.message)


def tree_to_pb(tree: TokenTree) -> common_pb2.Tree:
    return common_pb2.Tree(tokens=tree.tokens, parents=tree.parents)


def tree_from_pb(pb: common_pb2.Tree) -> TokenTree:
    return TokenTree(tuple(pb.tokens), tuple(pb.parents))


def sampling_to_pb(s: Sampling) -> common_pb2.Sampling:
    return common_pb2.Sampling(temperature=s.temperature, top_k=s.top_k, top_p=s.top_p, min_p=s.min_p)


def sampling_from_pb(pb: common_pb2.Sampling) -> Sampling:
    return Sampling(pb.temperature, pb.top_k, pb.top_p, pb.min_p)


def noise_to_pb(k: NoiseKey) -> common_pb2.NoiseKey:
    return common_pb2.NoiseKey(seed=k.seed, prompt_index=k.prompt_index, choice_index=k.choice_index)


def noise_from_pb(pb: common_pb2.NoiseKey) -> NoiseKey:
    return NoiseKey(pb.seed, pb.prompt_index, pb.choice_index)


def rows_to_bytes(rows: Rows) -> bytes:
    return rows.astype("<f4", copy=False).tobytes()


def rows_from_bytes(data: bytes, hidden_size: int) -> Rows:
    """[rows, hidden_size]; raises ValueError when the bytes are not a whole number of rows."""
    if len(data) % (4 * hidden_size):
        raise ValueError(f"hidden: {len(data)} bytes are not a whole number of rows of {hidden_size} float32")
    return np.frombuffer(data, dtype="<f4").reshape(-1, hidden_size)


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


@dataclass(frozen=True, slots=True)
class DraftPolicy:
    max_nodes: int
    max_depth: int
    width: int
    sources: tuple[int, ...]  # drafter_pb2.DraftSource

    def to_pb(self) -> drafter_pb2.DraftPolicy:
        return drafter_pb2.DraftPolicy(
            max_nodes=self.max_nodes,
            max_depth=self.max_depth,
            width=self.width,
            sources=[drafter_pb2.DraftSource.ValueType(s) for s in self.sources],
        )

    @classmethod
    def from_pb(cls, pb: drafter_pb2.DraftPolicy) -> DraftPolicy:
        return cls(pb.max_nodes, pb.max_depth, pb.width, tuple(int(s) for s in pb.sources))


@dataclass(frozen=True, slots=True)
class DraftItem:
    update: SessionUpdate
    policy: DraftPolicy
    sampling: Sampling
    noise: NoiseKey
    hidden: bytes = b""

    def to_pb(self) -> drafter_pb2.DraftItem:
        return drafter_pb2.DraftItem(
            update=self.update.to_pb(),
            hidden=self.hidden,
            policy=self.policy.to_pb(),
            sampling=sampling_to_pb(self.sampling),
            noise=noise_to_pb(self.noise),
        )

    @classmethod
    def from_pb(cls, pb: drafter_pb2.DraftItem) -> DraftItem:
        return cls(
            SessionUpdate.from_pb(pb.update),
            DraftPolicy.from_pb(pb.policy),
            sampling_from_pb(pb.sampling),
            noise_from_pb(pb.noise),
            pb.hidden,
        )


@dataclass(frozen=True, slots=True)
class Draft:
    """A drafted tree; probabilities and sources are one a node."""

    tree: TokenTree = TokenTree()
    probabilities: tuple[float, ...] = ()
    sources: tuple[int, ...] = ()

    def to_pb(self) -> drafter_pb2.DraftItemResult:
        return drafter_pb2.DraftItemResult(
            tree=tree_to_pb(self.tree),
            probabilities=self.probabilities,
            sources=[drafter_pb2.DraftSource.ValueType(s) for s in self.sources],
        )

    @classmethod
    def from_pb(cls, pb: drafter_pb2.DraftItemResult) -> Draft:
        return cls(tree_from_pb(pb.tree), tuple(pb.probabilities), tuple(int(s) for s in pb.sources))


@dataclass(frozen=True, slots=True)
class WalkItem:
    """`hidden` is float32 [1 + nodes, hidden_size] as bytes; `top_logprobs` None asks for no logprobs."""

    session: str
    hidden: bytes
    tree: TokenTree
    sampling: Sampling
    noise: NoiseKey
    position: int
    max_tokens: int
    end_ids: tuple[int, ...] = ()
    top_logprobs: int | None = None

    def to_pb(self) -> sampler_pb2.WalkItem:
        return sampler_pb2.WalkItem(
            session=self.session,
            hidden=self.hidden,
            tree=tree_to_pb(self.tree),
            sampling=sampling_to_pb(self.sampling),
            noise=noise_to_pb(self.noise),
            position=self.position,
            max_tokens=self.max_tokens,
            end_ids=self.end_ids,
            top_logprobs=self.top_logprobs,
        )

    @classmethod
    def from_pb(cls, pb: sampler_pb2.WalkItem) -> WalkItem:
        return cls(
            pb.session,
            pb.hidden,
            tree_from_pb(pb.tree),
            sampling_from_pb(pb.sampling),
            noise_from_pb(pb.noise),
            pb.position,
            pb.max_tokens,
            tuple(pb.end_ids),
            pb.top_logprobs if pb.HasField("top_logprobs") else None,
        )


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Natural logarithms under the target, before temperature and filters."""

    logprob: float
    top_ids: tuple[int, ...] = ()
    top_logprobs: tuple[float, ...] = ()

    def to_pb(self) -> sampler_pb2.TokenLogprobs:
        return sampler_pb2.TokenLogprobs(logprob=self.logprob, top_ids=self.top_ids, top_logprobs=self.top_logprobs)

    @classmethod
    def from_pb(cls, pb: sampler_pb2.TokenLogprobs) -> TokenLogprobs:
        return cls(pb.logprob, tuple(pb.top_ids), tuple(pb.top_logprobs))


@dataclass(frozen=True, slots=True)
class Walk:
    """What a walk emitted: tokens[i] is node accepted[i]'s; then the bonus, unless the walk ended on a node."""

    tokens: tuple[int, ...]
    accepted: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...] = field(default=())

    def to_pb(self) -> sampler_pb2.WalkItemResult:
        return sampler_pb2.WalkItemResult(
            tokens=self.tokens, accepted=self.accepted, logprobs=[entry.to_pb() for entry in self.logprobs]
        )

    @classmethod
    def from_pb(cls, pb: sampler_pb2.WalkItemResult) -> Walk:
        return cls(tuple(pb.tokens), tuple(pb.accepted), tuple(TokenLogprobs.from_pb(entry) for entry in pb.logprobs))
