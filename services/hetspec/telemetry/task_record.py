"""What is recorded of every task of a unit, at the one place where it ends."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from hetspec.rpc.messages import WorkTrace

OK = "ok"
"""The outcome of a task that was computed, whatever became of its items; else the error code's name in lower case."""


class TaskKind(StrEnum):
    """A task is one pass over items of several sessions; the costliest of them names it, in this order."""

    PREFILL = "prefill"  # verifier: an item appends more than one token, of a prompt or a rebuild
    VERIFY = "verify"  # verifier: an item carries a tree
    DECODE = "decode"  # verifier: one token a session
    PRE_VERIFY = "pre_verify"  # drafter that holds the target: an item carries a tree
    DRAFT = "draft"  # drafter
    WALK = "walk"  # sampler


@dataclass(frozen=True, slots=True)
class TaskRecord:
    """rows: computed, as the trace tells. bytes: of the task's and the result's messages.

    outcome: OK or the task's error code; refusals: that code, or those of single items. In lower case.
    """

    kind: TaskKind
    items: int
    rows: int
    queue_ns: int
    compute_ns: int
    trace: WorkTrace
    bytes_in: int
    bytes_out: int
    outcome: str = OK
    refusals: tuple[str, ...] = ()
