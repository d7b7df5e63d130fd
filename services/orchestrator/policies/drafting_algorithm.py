"""How long a chain is to be: algorithms from the literature, each of one session, that learn from its batches."""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

from hetspec.rpc.messages import DraftPolicy
from orchestrator.policies.adaedl import AdaEdl
from orchestrator.policies.bandits import Exp3Spec, UcbSpec
from orchestrator.policies.thresholds import SpecDecPlusPlus, Svip

ADAPTIVE_TOKENS = 16  # of a chain at most, that an algorithm may end earlier; where a request names no bound


class Drafting(StrEnum):
    FIXED = "fixed"
    SVIP = "svip"
    ADAEDL = "adaedl"
    SPECDECPP = "specdecpp"
    BANDITSPEC_UCB = "banditspec_ucb"
    BANDITSPEC_EXP3 = "banditspec_exp3"


class DraftingAlgorithm(Protocol):
    def policy(self, base: DraftPolicy) -> DraftPolicy:
        """Of the next chain. base: its bounds, which are kept."""

    def learn(self, policy: DraftPolicy, drafted: int, accepted: int, duration_ns: int) -> None:
        """How a verified batch went. policy: that it was drafted by. duration_ns: since the verification before."""


class Fixed:
    """As long as may be."""

    def policy(self, base: DraftPolicy) -> DraftPolicy:
        return base

    def learn(self, policy: DraftPolicy, drafted: int, accepted: int, duration_ns: int) -> None:
        """There is nothing to learn."""


def drafting_algorithm(name: Drafting, seed: int) -> DraftingAlgorithm:
    """seed: the request's; the same tokens and times lead to the same choices."""
    match name:
        case Drafting.FIXED:
            return Fixed()
        case Drafting.SVIP:
            return Svip()
        case Drafting.ADAEDL:
            return AdaEdl()
        case Drafting.SPECDECPP:
            return SpecDecPlusPlus()
        case Drafting.BANDITSPEC_UCB:
            return UcbSpec()
        case Drafting.BANDITSPEC_EXP3:
            return Exp3Spec(seed)
