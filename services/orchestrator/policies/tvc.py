"""Time-aware pre-verification control (TVC; AHASD, arXiv 2604.25326): how many drafted tokens the drafter may check
with the target itself, while the verifier works, without making the verifier wait.

What is left of the verifier's task once one batch more has been drafted is what a check may take: should it fail, there
must be time to draft anew, so that the verifier always finds work.
"""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.policies.latency import FittedLatency, LatencyModel, Per, RatioTable

MOST_TOKENS = 64  # of a check


@dataclass(frozen=True, slots=True)
class TaskErrors:
    """Of one kind of task: mean absolute relative errors of what was foretold before each of `tasks` tasks."""

    tasks: int = 0
    tables: float = 0.0
    fitted: float = 0.0

    def __add__(self, other: TaskErrors) -> TaskErrors:
        """Of the tasks of both."""
        tasks = self.tasks + other.tasks
        if not tasks:
            return self
        tables = (self.tables * self.tasks + other.tables * other.tasks) / tasks
        return TaskErrors(tasks, tables, (self.fitted * self.tasks + other.fitted * other.tasks) / tasks)


@dataclass(frozen=True, slots=True)
class TvcReport:
    verification: TaskErrors = TaskErrors()
    drafting: TaskErrors = TaskErrors()
    pre_verification: TaskErrors = TaskErrors()

    def __add__(self, other: TvcReport) -> TvcReport:
        return TvcReport(
            self.verification + other.verification,
            self.drafting + other.drafting,
            self.pre_verification + other.pre_verification,
        )


class _Task:
    """A kind of task, foretold by both models; `model` is the one that decisions go by."""

    def __init__(self, per: Per, fitted: bool) -> None:
        self.table = RatioTable(per)
        self._models: tuple[LatencyModel, LatencyModel] = self.table, FittedLatency()
        self._errors = [0.0, 0.0]
        self._foretold = 0
        self.model = self._models[fitted]

    @property
    def is_known(self) -> bool:
        return self.model.is_ready

    def learn(self, duration_ns: int, tokens: int, kv_len: int) -> None:
        if duration_ns < 1:
            raise ValueError(f"duration_ns = {duration_ns}, must be positive")
        if self.is_known:
            for i, model in enumerate(self._models):
                self._errors[i] += abs(model.estimate_ns(tokens, kv_len) - duration_ns) / duration_ns
            self._foretold += 1
        for model in self._models:
            model.learn(duration_ns, tokens, kv_len)

    def errors(self) -> TaskErrors:
        tables, fitted = (error / self._foretold if self._foretold else 0.0 for error in self._errors)
        return TaskErrors(self._foretold, tables, fitted)


class Tvc:
    """Of one session. Times are of the tasks alone, without their wait for the unit."""

    def __init__(self, fitted: bool = False) -> None:
        """fitted: decides by a fit that knows fixed costs, instead of the last four ratios."""
        self._verification = _Task(Per.KV, fitted)  # the NPU verification cycle table (NVCT)
        self._drafting = _Task(Per.TOKEN, fitted)  # the PIM drafting cycle table (PDCT)
        self._pre_verification = _Task(Per.TOKEN, fitted)  # the PIM pre-verification cycle table (PVCT)

    @property
    def is_ready(self) -> bool:
        """Whether a verification and a draft have been seen."""
        return self._verification.is_known and self._drafting.is_known

    def verified(self, duration_ns: int, kv_len: int, rows: int = 1) -> None:
        """kv_len: positions that the pass attended to, of which it fed `rows`."""
        self._verification.learn(duration_ns, rows, kv_len)

    def drafted(self, duration_ns: int, tokens: int, kv_len: int = 0) -> None:
        self._drafting.learn(duration_ns, tokens, kv_len)

    def pre_verified(self, duration_ns: int, tokens: int, kv_len: int = 0) -> None:
        self._pre_verification.learn(duration_ns, tokens, kv_len)

    def pre_verify_tokens(self, kv_len: int, spent_ns: int, next_draft_tokens: int, rows: int = 1) -> int:
        """How many of the earliest unverified tokens to check now; 0: none, draft on. At most MOST_TOKENS.

        kv_len, rows: of the verifier's task, on which it has spent spent_ns. next_draft_tokens: of the batch that must
        still fit in. None while no verification or no draft has been seen. The first check of all, from which the
        third table has its entry, is of one token, as soon as at least the time of a drafted token is left: less a
        token of the target cannot take. That time is the table's, for a fit to drafts of one length tells none of a
        token. At worst the verifier waits once for the rest of it.
        """
        if not self.is_ready:
            return 0
        left_ns = self._verification.model.estimate_ns(rows, kv_len) - spent_ns
        left_ns -= self._drafting.model.estimate_ns(next_draft_tokens, kv_len)
        if not self._pre_verification.is_known:
            return int(left_ns >= self._drafting.table.estimate_ns(1, kv_len))
        return self._pre_verification.model.tokens_within(left_ns, kv_len, MOST_TOKENS)

    def report(self) -> TvcReport:
        return TvcReport(self._verification.errors(), self._drafting.errors(), self._pre_verification.errors())
