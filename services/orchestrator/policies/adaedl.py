"""AdaEDL (arXiv 2410.18351): a chain ends where a lower bound on acceptance, by entropy, falls below a threshold; the
threshold follows the acceptance rate (Algorithm 1)."""

from __future__ import annotations

from dataclasses import replace

from hetspec.drafting.stop_rule import StopKind, StopRule
from hetspec.rpc.messages import DraftPolicy

_TARGET_RATE = 0.9  # alpha
_RATE_KEEPS = 0.5  # beta 1
_THRESHOLD_KEEPS = 0.9  # beta 2
_STEP = 0.01  # epsilon
_FIRST = 0.5  # the paper tries 0.3 to 0.9


class AdaEdl:
    """The rate begins at its target, so that the first batch alone says where the threshold goes."""

    def __init__(self) -> None:
        self.threshold = _FIRST
        self._rate = _TARGET_RATE

    def policy(self, base: DraftPolicy) -> DraftPolicy:
        return replace(base, stop=StopRule(StopKind.ACCEPTANCE_BOUND, self.threshold))

    def learn(self, policy: DraftPolicy, drafted: int, accepted: int, duration_ns: int) -> None:
        if not drafted:
            return
        self._rate = _RATE_KEEPS * self._rate + (1 - _RATE_KEEPS) * accepted / drafted
        aim = self.threshold
        if self._rate < _TARGET_RATE:
            aim += _STEP
        elif accepted != policy.max_depth:
            aim -= _STEP
        self.threshold = min(1.0, _THRESHOLD_KEEPS * self.threshold + (1 - _THRESHOLD_KEEPS) * aim)
