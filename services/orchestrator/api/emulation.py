"""What an answer tells of its clock: in an emulated world the time and energy that its choices took there, by device
and component, and what plain decoding of the same tokens would have taken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from hetspec.hardware.profile import FLASH
from orchestrator.clock.presence import REQUEST, Charge, Key, Presence, time_of
from orchestrator.clock.world import World

Json = dict[str, Any]


def clock_json(world: World | None) -> Json:
    if world is None:
        return {"clock": "host"}
    return {"clock": world.name, "hardware": world.hardware.profile.name, "cost_as": world.hardware.cost_as.name}


def emulation_json(presences: Sequence[Presence]) -> Json:
    """Of choices that came at the same time; of one alone, when each of its tokens came, too."""
    last = max(presences, key=lambda presence: presence.end_ns)  # was there as long as any of them
    energies = Counter[Key]()
    for presence in presences:
        energies.update(presence.energy_pj())
    token_ns = {"emulated_token_ns": last.token_ns} if len(presences) == 1 else {}
    busy_ns = last.busy_ns
    total_busy_ns = sum(busy_ns.values())
    return {
        "emulated_total_ns": last.total_ns,
        "emulated_first_token_ns": min((p.token_ns[0] for p in presences if p.token_ns), default=None),
        **token_ns,
        "emulated_ns": _nested(time_of(presences)),
        "energy_total_pj": sum(energies.values()),
        "energy_pj": _nested(energies),
        "busy_ns": dict(busy_ns),
        "idle_ns": {device: last.total_ns - busy for device, busy in busy_ns.items()},
        "io_share": busy_ns.get(FLASH, 0) / total_busy_ns if total_busy_ns else 0.0,
        "plain_emulated_total_ns": sum(presence.plain_ns for presence in presences),
        "lag_ns": max(presence.lag_ns for presence in presences),
    }


def explained(presence: Presence) -> Json:
    """Task by task: `waited_ns` and `time_ns` of all of them, and the choice's own `waited_ns` and `overlapped_ns`
    (`time_of`), sum to `total_ns`."""
    times = presence.time_ns()
    return {
        "arrival_ns": presence.arrival_ns,
        "total_ns": presence.total_ns,
        "token_ns": presence.token_ns,
        "waited_ns": times[REQUEST, "waited"],
        "overlapped_ns": times[REQUEST, "overlapped"],
        "tasks": [_task(charge, presence.arrival_ns) for charge in presence.charges],
        "energy_pj": _nested(presence.energy_pj()),
    }


def _task(charge: Charge, arrival_ns: int) -> Json:
    return {
        "round": charge.round,
        "role": charge.role,
        "device": charge.cost.device,
        "start_ns": charge.start_ns - arrival_ns,
        "end_ns": charge.end_ns - arrival_ns,
        "waited_ns": charge.start_ns - charge.arrived_ns,
        "time_ns": {str(component): ns for component, ns in charge.cost.time_ns.items()},
        "energy_pj": sum(use.energy_pj for use in charge.uses),
        "rows": charge.rows,
        "pass_rows": charge.pass_rows,
        "head_rows": charge.head_rows,
        "numbers": [asdict(number) for number in charge.cost.numbers],
    }


def _nested(by_key: Mapping[Key, int]) -> dict[str, dict[str, int]]:
    nested: dict[str, dict[str, int]] = {}
    for (device, component), value in sorted(by_key.items()):
        nested.setdefault(device, {})[str(component)] = value
    return nested
