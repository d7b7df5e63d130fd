"""Profiles the process it is in: stacks, operators, tasks and what the metrics grew by, over one window of time."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from prometheus_client import CollectorRegistry

from hetspec.rpc.logs import log_event
from hetspec.telemetry.counters import Counters
from hetspec.telemetry.frame_sampler import FrameSampler
from hetspec.telemetry.profile import OperatorTotal, Profile, Sampler, Stack, TaskSpan, check_seconds
from hetspec.telemetry.py_spy import PySpy, PySpyError
from hetspec.telemetry.task_log import TaskLog

_ATTEMPTS = 2  # py-spy looks at what does not stand still: the first look may fail where the next does not


class ProfilerBusyError(Exception):
    """Another profile is being taken."""


class StackSampler(Protocol):
    """Looks from the time it is there; `finish` gives what it saw, `kill` drops it."""

    sampler: Sampler

    async def finish(self) -> tuple[Stack, ...]: ...

    async def kill(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Reading:
    """What everything stood at, at one time. tasks, dropped: of the window that ends then."""

    at_ns: int
    counters: Counters
    operators: tuple[OperatorTotal, ...]
    tasks: tuple[TaskSpan, ...] = ()
    dropped: int = 0


async def _at_once(read: Callable[[], Reading]) -> Reading:
    return read()


class Profiler:
    """One profile at a time.

    operators: their totals so far. tasks: told of every task that ends. between_tasks: calls a function when no task
    runs, so that operators, tasks and counters tell of the same work.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        operators: Callable[[], Sequence[OperatorTotal]] = tuple,
        between_tasks: Callable[[Callable[[], Reading]], Awaitable[Reading]] = _at_once,
    ) -> None:
        self.tasks = TaskLog()
        self._registry = registry
        self._operators = operators
        self._between_tasks = between_tasks
        self._busy = False

    async def profile(self, seconds: int) -> Profile:
        """Raises ValueError, ProfilerBusyError."""
        check_seconds(seconds)
        if self._busy:
            raise ProfilerBusyError("a profile is being taken already")
        self._busy = True
        try:
            sampler = await _start_sampler(seconds)
            try:
                return await self._look(seconds, sampler)
            finally:
                await sampler.kill()
        finally:
            self.tasks.close()  # still open where the profile was cut
            self._busy = False

    async def _look(self, seconds: int, sampler: StackSampler) -> Profile:
        before = await self._between_tasks(self._begin)
        await asyncio.sleep(seconds)
        after = await self._between_tasks(self._end)
        seen, stacks = await _finish(sampler)
        return Profile(
            seen,
            before.at_ns,
            after.at_ns,
            stacks,
            _growth(before.operators, after.operators),
            after.counters.since(before.counters),
            after.tasks,
            after.dropped,
        )

    def _begin(self) -> Reading:
        self.tasks.open()
        return self._read()

    def _end(self) -> Reading:
        tasks, dropped = self.tasks.close()
        return replace(self._read(), tasks=tasks, dropped=dropped)

    def _read(self) -> Reading:
        return Reading(time.monotonic_ns(), Counters(self._registry), tuple(self._operators()))


async def _start_sampler(seconds: int) -> StackSampler:
    reason = ""
    for _ in range(_ATTEMPTS):
        try:
            return await PySpy.start(seconds)
        except PySpyError as error:
            reason = str(error)
    log_event("py-spy cannot look, a thread of ours does", level=logging.WARNING, reason=reason)
    return FrameSampler(reason)


async def _finish(sampler: StackSampler) -> tuple[Sampler, tuple[Stack, ...]]:
    """Without stacks, and the reason as a note, where they were lost on the way: the rest is worth telling."""
    try:
        return sampler.sampler, await sampler.finish()
    except PySpyError as error:
        return replace(sampler.sampler, note=str(error)), ()


def _growth(before: Sequence[OperatorTotal], after: Sequence[OperatorTotal]) -> tuple[OperatorTotal, ...]:
    """Of the operators that ran in between."""
    known = {(total.group, total.name): total for total in before}
    grown = (total.since(earlier) if (earlier := known.get((total.group, total.name))) else total for total in after)
    return tuple(total for total in grown if total.calls)
