"""A request's timeline as a trace: process 1 is emulated time, process 2 the host's. Both begin with the request."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from orchestrator.api.chrome_trace import Process
from orchestrator.api.emulation import clock_json
from orchestrator.api.trace_emulated import fill_emulated, lanes
from orchestrator.api.trace_host import fill_host, lane, sent
from orchestrator.clock.world import World
from orchestrator.engine.request import Statistics

_EMULATED, _HOST = 1, 2


def trace_json(request_id: str, choices: Sequence[Statistics], world: World | None) -> dict[str, Any]:
    """A Chrome trace event file."""
    ids = itertools.count(1)
    processes = [_emulated(choices, world, ids)] if world is not None else []
    events = [event for process in [*processes, _host(choices, ids)] for event in process.events()]
    left_out = sum(choice.timeline.left_out for choice in choices)
    about = {"request": request_id, "mode": str(choices[0].mode), **clock_json(world), "tasks_left_out": left_out}
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": about}


def _emulated(choices: Sequence[Statistics], world: World, ids: itertools.count[int]) -> Process:
    told = [(choice.presence, choice.timeline) for choice in choices if choice.presence is not None]
    presences = [presence for presence, _ in told]
    name = f"emulated {world.hardware.profile.name}, priced as {world.hardware.cost_as.name}"
    origin_ns = min((presence.arrival_ns for presence in presences), default=0)
    process = Process(_EMULATED, name, lanes(presences), origin_ns, ids)
    fill_emulated(process, told, world)
    return process


def _host(choices: Sequence[Statistics], ids: itertools.count[int]) -> Process:
    timelines = [choice.timeline for choice in choices]
    tasks = sent(timelines)
    order = {lane(task): (task.kind.unit, task.address) for task in tasks}
    origin_ns = min((task.arrived_ns for task in tasks), default=0)
    process = Process(_HOST, "host", sorted(order, key=lambda unit: order[unit]), origin_ns, ids)
    fill_host(process, timelines)
    return process
