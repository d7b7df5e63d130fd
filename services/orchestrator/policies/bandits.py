"""BanditSpec (arXiv 2505.15141): the length of a chain as the arm of a bandit.

The reward is the throughput, as in the paper's experiment with lengths (section 6.2): tokens of a round, the bonus
among them, over its time. Its algorithms want rewards of a known range, from 1 to L + 1 tokens; here a round's
throughput is divided by the largest seen so far, which makes the range 1, L.
"""

from __future__ import annotations

from dataclasses import replace
from math import exp, log, sqrt
from random import Random

from hetspec.rpc.messages import DraftPolicy

LENGTHS = (1, 2, 4, 8)  # the arms
_RANGE = 1.0  # L
_DELTA = 1.0  # of the confidence radius


class _Lengths:
    """What arms do alike. A length beyond the bounds stands for the longest within them."""

    def __init__(self) -> None:
        self._best = 0.0  # throughput

    def _bounded(self, base: DraftPolicy, arm: int) -> DraftPolicy:
        length = min(LENGTHS[arm], base.max_depth)
        return replace(base, max_nodes=min(length, base.max_nodes), max_depth=length)

    @staticmethod
    def _arm_of(policy: DraftPolicy) -> int:
        return next((arm for arm, length in enumerate(LENGTHS) if length >= policy.max_depth), len(LENGTHS) - 1)

    def _throughput(self, accepted: int, duration_ns: int) -> float:
        throughput = (accepted + 1) / max(1, duration_ns)
        self._best = max(self._best, throughput)
        return throughput


class UcbSpec(_Lengths):
    """UCBSpec (Algorithm 4): the arm of the largest upper confidence bound; each is tried once before."""

    def __init__(self) -> None:
        super().__init__()
        self._pulls = [0] * len(LENGTHS)
        self._sums = [0.0] * len(LENGTHS)

    def policy(self, base: DraftPolicy) -> DraftPolicy:
        return self._bounded(base, self._choose())

    def learn(self, policy: DraftPolicy, drafted: int, accepted: int, duration_ns: int) -> None:
        arm = self._arm_of(policy)
        self._pulls[arm] += 1
        self._sums[arm] += self._throughput(accepted, duration_ns)

    def _choose(self) -> int:
        if 0 in self._pulls:
            return self._pulls.index(0)
        return max(range(len(LENGTHS)), key=self._bound)

    def _bound(self, arm: int) -> float:
        n, t = self._pulls[arm], sum(self._pulls)
        spread = 1 + 2 * log(len(LENGTHS) * t**2 * sqrt(1 + n) / _DELTA)
        return self._sums[arm] / n / self._best + _RANGE / 2 * sqrt((1 + n) / n**2 * spread)


class Exp3Spec(_Lengths):
    """EXP3Spec (Algorithm 5): an arm by chance, which falls exponentially with its estimated loss."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._random = Random(seed)
        self._rounds = 0
        self._losses = [0.0] * len(LENGTHS)
        self._chosen_by = [1.0] * len(LENGTHS)  # the chance that each arm had when it was chosen last

    def policy(self, base: DraftPolicy) -> DraftPolicy:
        chances = self._chances()
        (arm,) = self._random.choices(range(len(LENGTHS)), chances)
        self._chosen_by[arm] = chances[arm]
        return self._bounded(base, arm)

    def learn(self, policy: DraftPolicy, drafted: int, accepted: int, duration_ns: int) -> None:
        arm = self._arm_of(policy)
        loss = 1 - self._throughput(accepted, duration_ns) / self._best
        self._losses[arm] += loss / self._chosen_by[arm]
        self._rounds += 1

    def _chances(self) -> list[float]:
        arms = len(LENGTHS)
        rate = sqrt(log(arms) / ((self._rounds + 1) * arms))
        least = min(self._losses)
        weights = [exp(-rate * (loss - least)) for loss in self._losses]
        total = sum(weights)
        return [weight / total for weight in weights]
