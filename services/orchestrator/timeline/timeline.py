"""A session's timeline: every task that was asked for it, which draft each verdict was about, and what was cut,
dropped and switched. It is kept under every clock, and bounded.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from hetspec.hardware.platform import Role
from orchestrator.timeline.task import CURRENT, Kind, Outcome, Task

MAX_TASKS = 10_000


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that happened at a moment, to a task or in a role's unit. emulated_ns: None under the host's clock."""

    what: str
    role: Role
    task: Task | None
    host_ns: int
    emulated_ns: int | None


@dataclass(frozen=True, slots=True)
class Flow:
    """What `source` made is what `target` decided on."""

    source: Task
    target: Task


class Timeline:
    """Of one choice of a request. left_out: tasks that came after the first `max_tasks`."""

    def __init__(self, emulated_ns: Callable[[], int] | None = None, max_tasks: int = MAX_TASKS) -> None:
        """emulated_ns: what the time is in an emulated world."""
        self._emulated_ns = emulated_ns
        self._max_tasks = max_tasks
        self.round = 0  # that runs
        self.tasks: list[Task] = []
        self.marks: list[Mark] = []
        self.flows: list[Flow] = []
        self.left_out = 0
        self._proposed: tuple[Task, ...] = ()
        self._checks = False  # the drafter, itself

    @contextmanager
    def task(self, kind: Kind, size: str = "") -> Iterator[Task]:
        """Around the wait for a unit: what is sent to it there is this task.

        Left with CancelledError it counts as cancelled, unless it was `cut` before, with another exception as failed.
        """
        task = Task(kind, self.round, size)
        self._note_switch(kind)
        is_kept = len(self.tasks) < self._max_tasks
        if is_kept:
            self.tasks.append(task)
        self.left_out += not is_kept
        token = CURRENT.set(task if is_kept else None)
        outcome = Outcome.FAILED
        try:
            yield task
            outcome = Outcome.DONE
        except asyncio.CancelledError:
            outcome = Outcome.CANCELLED
            raise
        finally:
            CURRENT.reset(token)
            task.over(outcome, time.perf_counter_ns())

    def propose(self, *drafts: Task | None) -> None:
        """What is verified next is what these made."""
        self._proposed = tuple(draft for draft in drafts if draft is not None)

    def judge(self, verification: Task) -> None:
        """Of what was proposed last."""
        for draft in self._proposed:
            self.flow(draft, verification)
        self._proposed = ()

    def flow(self, source: Task, target: Task) -> None:
        """source: a draft; target: the verification of it."""
        if len(self.flows) < self._max_tasks:
            self.flows.append(Flow(source, target))

    def running(self, role: Role) -> Task | None:
        """The newest of a role's tasks, if it has not ended."""
        task = next((task for task in reversed(self.tasks) if task.kind.role is role), None)
        return task if task is not None and task.outcome is Outcome.RUNNING else None

    def cut(self, task: Task) -> None:
        """It is about to be cancelled, as nobody can use it any more."""
        task.outcome = Outcome.CUT
        self._mark(f"cut: {task.name}", task.kind.role, task)

    def dropped(self, task: Task) -> None:
        """What it made is thrown away unused."""
        if task.outcome is Outcome.DONE:
            task.outcome = Outcome.DROPPED
            self._mark(f"dropped: {task.name}", task.kind.role, task)

    def _note_switch(self, kind: Kind) -> None:
        """Between drafting and checking what was drafted, on the drafter's device."""
        checks = kind is Kind.PRE_VERIFY
        if kind.role is Role.DRAFTER and checks is not self._checks:
            self._checks = checks
            self._mark("switch to checking" if checks else "switch to drafting", kind.role)

    def _mark(self, what: str, role: Role, task: Task | None = None) -> None:
        emulated_ns = None if self._emulated_ns is None else self._emulated_ns()
        if len(self.marks) < self._max_tasks:
            self.marks.append(Mark(what, role, task, time.perf_counter_ns(), emulated_ns))
