"""When a chain ends before its bounds, judged after each step of the draft model. Entropies are in nats.

SVIP (arXiv 2411.18462): where the square root of the entropy that a token was drawn at exceeds a threshold, that token
is the last. AdaEDL (arXiv 2410.18351): where 1 - sqrt(0.2 H), about the least chance of acceptance at entropy H, lies
below a threshold, the token is not drafted; a chain's first always is. SpecDec++ (arXiv 2405.19715): where the chance
that at least one token of the chain is rejected exceeds a threshold, it ends.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from math import inf, prod, sqrt

from hetspec.v1 import drafter_pb2

_BOUND_SCALE = 0.2  # of the entropy (AdaEDL, section 3.1)


class StopKind(IntEnum):
    ROOT_ENTROPY = drafter_pb2.STOP_KIND_ROOT_ENTROPY
    ACCEPTANCE_BOUND = drafter_pb2.STOP_KIND_ACCEPTANCE_BOUND
    REJECTION = drafter_pb2.STOP_KIND_REJECTION


_BOUNDS = {StopKind.ROOT_ENTROPY: (0.0, inf), StopKind.ACCEPTANCE_BOUND: (-inf, 1.0), StopKind.REJECTION: (0.0, 1.0)}


@dataclass(frozen=True, slots=True)
class StopRule:
    kind: StopKind
    threshold: float

    def __post_init__(self) -> None:
        least, most = _BOUNDS[self.kind]
        if not least <= self.threshold <= most:
            raise ValueError(f"policy.stop.threshold = {self.threshold}, must be in [{least}, {most}]")

    @property
    def needs_acceptance(self) -> bool:
        """Whether the draft model's acceptance head has to judge each token that is fed."""
        return self.kind is StopKind.REJECTION

    def ends_before(self, entropy: float, acceptances: Iterable[float]) -> bool:
        """Whether a chain that holds tokens gets no other. entropy: that the other would be drawn at. acceptances: of
        the chain's tokens, each given those before it."""
        if self.kind is StopKind.ACCEPTANCE_BOUND:
            return 1 - sqrt(_BOUND_SCALE * entropy) < self.threshold
        return self.kind is StopKind.REJECTION and 1 - prod(acceptances) > self.threshold

    def ends_after(self, entropy: float) -> bool:
        """Whether a token drawn at that entropy is the last."""
        return self.kind is StopKind.ROOT_ENTROPY and sqrt(entropy) > self.threshold
