"""Algorithms that end a chain by a threshold that stays as it is."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hetspec.drafting.stop_rule import StopKind, StopRule
from hetspec.rpc.messages import DraftPolicy


@dataclass(frozen=True, slots=True)
class _Threshold:
    rule: StopRule

    def policy(self, base: DraftPolicy) -> DraftPolicy:
        return replace(base, stop=self.rule)

    def learn(self, policy: DraftPolicy, drafted: int, accepted: int, duration_ns: int) -> None:
        """It learns nothing."""


class Svip(_Threshold):
    """Self-verification length policy (arXiv 2411.18462). Its authors' code ends a chain where sqrt(0.15 H) > 0.3, that
    is where sqrt(H) > sqrt(0.6)."""

    def __init__(self, most_root_entropy: float = 0.6**0.5) -> None:
        super().__init__(StopRule(StopKind.ROOT_ENTROPY, most_root_entropy))


class SpecDecPlusPlus(_Threshold):
    """SpecDec++ (arXiv 2405.19715): the best policy of its decision process ends a chain where the chance of a
    rejection in it exceeds a threshold, which depends on what a step costs; 0.3 is what its authors' code is run
    with."""

    def __init__(self, most_rejection: float = 0.3) -> None:
        super().__init__(StopRule(StopKind.REJECTION, most_rejection))
