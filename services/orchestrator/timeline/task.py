"""What a unit is asked for, for one session, and what became of it."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum

from hetspec.hardware.platform import Role


class Kind(StrEnum):
    """What for."""

    DRAFT = "draft"
    LOOK_AHEAD = "look ahead"  # below what is not verified yet
    PRE_VERIFY = "pre-verify"  # the drafter checks its own draft early
    PREFILL = "prefill"
    REBUILD = "rebuild"  # tokens that a verifier which was lost had read
    VERIFY = "verify"  # decides a round: the last token, with the draft below it
    WALK = "walk"
    SCORE = "score"  # logprobs of a prompt

    @property
    def unit(self) -> str:
        return "pre_verifier" if self is Kind.PRE_VERIFY else self.role.value

    @property
    def role(self) -> Role:
        """That is played on emulated hardware."""
        match self:
            case Kind.DRAFT | Kind.LOOK_AHEAD | Kind.PRE_VERIFY:
                return Role.DRAFTER
            case Kind.PREFILL | Kind.REBUILD | Kind.VERIFY:
                return Role.VERIFIER
            case Kind.WALK | Kind.SCORE:
                return Role.SAMPLER


class Outcome(StrEnum):
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"  # the unit refused it or was lost
    CANCELLED = "cancelled"  # with the request
    CUT = "cut"  # ended early: nobody could use it any more
    DROPPED = "dropped"  # done, and of no use


@dataclass(slots=True, eq=False)
class Task:
    """size: in words, "12 nodes". address: of the unit. Times are the host's (time.perf_counter_ns), 0 where it did not
    come so far: it waited from arrived_ns to sent_ns, and the answer came at end_ns.

    Of the pass that it was part of, queue_ns and compute_ns are the unit's own word; rows of pass_rows are this task's.
    """

    kind: Kind
    round: int
    size: str = ""
    outcome: Outcome = Outcome.RUNNING
    address: str = ""
    arrived_ns: int = 0
    sent_ns: int = 0
    end_ns: int = 0
    queue_ns: int = 0
    compute_ns: int = 0
    rows: int = 0
    pass_rows: int = 0

    @property
    def name(self) -> str:
        return f"{self.kind} {self.size}".rstrip()

    @property
    def cause(self) -> str:
        return f"round {self.round}: {self.name}"

    def sent(self, arrived_ns: int, sent_ns: int, rows: int, pass_rows: int) -> None:
        self.arrived_ns, self.sent_ns = arrived_ns, sent_ns
        self.rows, self.pass_rows = rows, pass_rows

    def answered(self, end_ns: int, queue_ns: int, compute_ns: int) -> None:
        self.end_ns = self.end_ns or end_ns
        self.queue_ns, self.compute_ns = queue_ns, compute_ns

    def over(self, outcome: Outcome, now_ns: int) -> None:
        """A task that was sent and not answered ends now. What it has been called before stands."""
        if self.outcome is Outcome.RUNNING:
            self.outcome = outcome
        if self.sent_ns and not self.end_ns:
            self.end_ns = now_ns


CURRENT: ContextVar[Task | None] = ContextVar("task", default=None)
"""That a unit is being asked for."""
