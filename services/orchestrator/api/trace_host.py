"""A request's timeline in the host's time, as the orchestrator saw it: a lane a unit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from orchestrator.api.chrome_trace import Block, Process
from orchestrator.timeline.task import Outcome, Task
from orchestrator.timeline.timeline import Timeline


def lane(task: Task) -> str:
    return f"{task.kind.unit} {task.address}"


def sent(timelines: Sequence[Timeline]) -> list[Task]:
    """Tasks that reached a unit."""
    return [task for timeline in timelines for task in timeline.tasks if task.sent_ns and task.end_ns]


def fill_host(process: Process, timelines: Sequence[Timeline]) -> None:
    """process: with a lane for each task that was sent."""
    choices = {task: index for index, timeline in enumerate(timelines) for task in timeline.tasks}
    passes: dict[tuple[str, int], list[Task]] = {}
    for task in sent(timelines):
        passes.setdefault((lane(task), task.sent_ns), []).append(task)
    where: dict[Task, Block] = {}
    for (unit, sent_ns), tasks in passes.items():
        block = Block(unit, sent_ns, max(task.end_ns for task in tasks))
        process.block(block, _name(tasks), tasks[0].kind, _args(tasks, [choices[task] for task in tasks]))
        for task in tasks:
            where[task] = block
            if task.arrived_ns < sent_ns:
                process.wait(Block(unit, task.arrived_ns, sent_ns), task.cause)
    for timeline in timelines:
        _fill_marks(process, timeline, where)


def _fill_marks(process: Process, timeline: Timeline, where: dict[Task, Block]) -> None:
    """What was never sent to a unit has no place here."""
    units = {task.kind.role: block.lane for task, block in where.items()}
    for flow in timeline.flows:
        if flow.source in where and flow.target in where:
            process.arrow(where[flow.source], where[flow.target], "judged")
    for mark in timeline.marks:
        block = where.get(mark.task) if mark.task is not None else None
        if (unit := block.lane if block is not None else units.get(mark.role)) is not None:
            process.instant(unit, mark.host_ns, mark.what)


def _name(tasks: Sequence[Task]) -> str:
    if len(tasks) > 1:
        return f"{tasks[0].kind} {sum(task.rows for task in tasks)} rows"
    return tasks[0].name + (" (cut)" if tasks[0].outcome is Outcome.CUT else "")


def _args(tasks: Sequence[Task], choices: Sequence[int]) -> dict[str, Any]:
    """compute_ns, unit_queue_ns: of the whole pass, by the unit's own clock; 0 where it did not answer."""
    return {
        "choices": list(choices),
        "cause": [task.cause for task in tasks],
        "outcome": [task.outcome for task in tasks],
        "rows": sum(task.rows for task in tasks),
        "pass_rows": tasks[0].pass_rows,
        "compute_ns": max(task.compute_ns for task in tasks),
        "unit_queue_ns": max(task.queue_ns for task in tasks),
        "waited_ns": [task.sent_ns - task.arrived_ns for task in tasks],
    }
