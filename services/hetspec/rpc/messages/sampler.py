"""The sampler's items and results."""

from __future__ import annotations

from dataclasses import dataclass, field

from hetspec.decoding.constraint import Constraint, Past
from hetspec.decoding.sampling import NoiseKey, Sampling
from hetspec.decoding.tree import TokenTree
from hetspec.rpc.messages import decoding
from hetspec.v1 import sampler_pb2


@dataclass(frozen=True, slots=True)
class WalkItem:
    """`hidden` is float32 [1 + nodes, hidden_size] as bytes; `top_logprobs` None asks for no logprobs.

    With `scored`, nothing is chosen: token i gets its logprobs from row i of `hidden`. eager: every row goes through
    the head before the walk.
    """

    session: str
    hidden: bytes
    tree: TokenTree
    sampling: Sampling
    noise: NoiseKey
    position: int
    max_tokens: int
    end_ids: tuple[int, ...] = ()
    top_logprobs: int | None = None
    constraint: Constraint = Constraint()
    past: Past = Past()
    scored: tuple[int, ...] = ()
    eager: bool = False

    def to_pb(self) -> sampler_pb2.WalkItem:
        return sampler_pb2.WalkItem(
            session=self.session,
            hidden=self.hidden,
            tree=decoding.tree_to_pb(self.tree),
            sampling=decoding.sampling_to_pb(self.sampling),
            noise=decoding.noise_to_pb(self.noise),
            position=self.position,
            max_tokens=self.max_tokens,
            end_ids=self.end_ids,
            top_logprobs=self.top_logprobs,
            constraint=decoding.constraint_to_pb(self.constraint),
            past=decoding.past_to_pb(self.past),
            scored=self.scored,
            eager=self.eager,
        )

    @classmethod
    def from_pb(cls, pb: sampler_pb2.WalkItem) -> WalkItem:
        return cls(
            pb.session,
            pb.hidden,
            decoding.tree_from_pb(pb.tree),
            decoding.sampling_from_pb(pb.sampling),
            decoding.noise_from_pb(pb.noise),
            pb.position,
            pb.max_tokens,
            tuple(pb.end_ids),
            pb.top_logprobs if pb.HasField("top_logprobs") else None,
            decoding.constraint_from_pb(pb.constraint),
            decoding.past_from_pb(pb.past),
            tuple(pb.scored),
            pb.eager,
        )


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Natural logarithms under the target, before everything that the request changes of its distribution."""

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
