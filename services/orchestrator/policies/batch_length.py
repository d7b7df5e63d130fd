"""How long the batches of an asynchronous pipeline are best, with their survival in view.

A longer batch gives more tokens if it is accepted, but what is drafted ahead of it survives more rarely. With a chance
`a` that a drafted token is accepted, a batch of n gives (1 - a^(n+1)) / (1 - a) tokens, its bonus counted. With a
chance s(n) that the next batch survives, drafted meanwhile, a cycle takes
verify + (1 - s) n step + s max(0, (n + 1) step - verify): a batch that is void is drafted again, and the verifier
waits; what is drafted ahead has the bonus before it, to be guessed by a step of its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from hetspec.rpc.messages import DraftPolicy

TIMES = 4  # last ones of a kind, of which the mean counts
_PRIOR = 0.5, 4.0  # a chance that nothing is known of, and how many trials that is worth


@dataclass(slots=True)
class _Chance:
    hits: float = _PRIOR[0] * _PRIOR[1]
    trials: float = _PRIOR[1]

    def add(self, hits: float, trials: float) -> None:
        self.hits += hits
        self.trials += trials

    @property
    def value(self) -> float:
        return self.hits / self.trials


def _times() -> deque[float]:
    return deque(maxlen=TIMES)


@dataclass(slots=True)
class BatchLength:
    """Of one session; it learns from every batch and every verification."""

    _accepted: _Chance = field(default_factory=_Chance)
    _outcome: _Chance = field(default_factory=_Chance)
    """Batches that survive for each whose forerunner is accepted in full: more than one where outcomes in the middle of
    a batch, or checks, let others survive, too."""
    _step_ns: deque[float] = field(default_factory=_times)
    _verify_ns: deque[float] = field(default_factory=_times)

    def drafted(self, tokens: int, duration_ns: int) -> None:
        self._step_ns.append(duration_ns / tokens)

    def verified(self, duration_ns: int) -> None:
        self._verify_ns.append(duration_ns)

    def judged(self, tokens: int, accepted: int, survived: bool | None) -> None:
        """How a batch of so many tokens went. survived: of what was drafted ahead of it, if anything was."""
        self._accepted.add(accepted, accepted + (accepted < tokens))
        if survived is not None:
            self._outcome.add(survived, self._accepted.value**tokens)

    @property
    def accepted(self) -> float:
        """The chance that a drafted token is, where all before it were."""
        return self._accepted.value

    def tokens(self, length: int) -> float:
        """That a batch gives, its bonus counted."""
        return sum(self.accepted**i for i in range(length + 1))

    def survival(self, tokens: int) -> float:
        """The chance that what is drafted ahead behind so many drafted tokens is of use: they are all accepted, and the
        one that it begins with is right."""
        return self._accepted.value ** (tokens + 1)

    def policy(self, base: DraftPolicy) -> DraftPolicy:
        """Of the next chain, as long as is best within its bounds; before anything is known, as long as may be."""
        if not (self._step_ns and self._verify_ns):
            return base
        length = self.best(range(1, base.max_depth + 1), _mean(self._step_ns), _mean(self._verify_ns))
        return replace(base, max_depth=length, max_nodes=min(base.max_nodes, length))

    def best(self, lengths: Iterable[int], step_ns: float, verify_ns: float) -> int:
        """The shortest of those that give the most tokens for their time."""
        return max(lengths, key=lambda length: (self.tokens_per_ns(length, step_ns, verify_ns), -length))

    def tokens_per_ns(self, length: int, step_ns: float, verify_ns: float) -> float:
        survives = min(1.0, self.accepted**length * self._outcome.value)
        draft_ns = length * step_ns
        wait_ns = (1 - survives) * draft_ns + survives * max(0.0, draft_ns + step_ns - verify_ns)
        return self.tokens(length) / (verify_ns + wait_ns)


def _mean(times: deque[float]) -> float:
    return sum(times) / len(times)
