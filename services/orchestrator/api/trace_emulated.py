"""A request's timeline in emulated time: a lane a device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from hetspec.hardware.profile import FLASH
from orchestrator.api.chrome_trace import Block, Process
from orchestrator.clock.devices import Span
from orchestrator.clock.presence import Charge, Presence
from orchestrator.clock.world import World
from orchestrator.timeline.task import Outcome, Task
from orchestrator.timeline.timeline import Timeline

Choice = tuple[Presence, Timeline]


@dataclass(frozen=True, slots=True)
class _Pass:
    """What a device did at once, for one choice or several. parts: (index of the choice, its charge)."""

    parts: list[tuple[int, Charge]] = field(default_factory=list)

    @property
    def block(self) -> Block:
        charge = self.parts[0][1]
        return Block(charge.cost.device, charge.start_ns, charge.end_ns)

    @property
    def flash_block(self) -> Block | None:
        """As late as it may have been read: for some passes it is read earlier, with pauses."""
        charge = self.parts[0][1]
        end_ns = charge.start_ns + charge.cost.flash_ready_ns
        return Block(FLASH, end_ns - charge.cost.flash_busy_ns, end_ns) if charge.cost.flash_busy_ns else None

    @property
    def kind(self) -> str:
        charge = self.parts[0][1]
        return charge.role if charge.task is None else charge.task.kind

    @property
    def name(self) -> str:
        charge = self.parts[0][1]
        if len(self.parts) > 1 or charge.task is None:
            return f"{self.kind} {sum(charge.rows for _, charge in self.parts)} rows"
        return charge.task.name + (" (cut)" if charge.task.outcome is Outcome.CUT else "")

    def args(self) -> dict[str, Any]:
        charges = [charge for _, charge in self.parts]
        return {
            "choices": [index for index, _ in self.parts],
            "cause": [cause(charge) for charge in charges],
            "outcome": [charge.task.outcome for charge in charges if charge.task is not None],
            "rows": sum(charge.rows for charge in charges),
            "pass_rows": charges[0].pass_rows,
            "time_ns": {str(component): ns for component, ns in charges[0].cost.time_ns.items()},
            "energy_pj": sum(use.energy_pj for charge in charges for use in charge.uses),
            "waited_ns": [charge.start_ns - charge.arrived_ns for charge in charges],
        }


def cause(charge: Charge) -> str:
    return f"round {charge.round}: {charge.role}" if charge.task is None else charge.task.cause


def fill_emulated(process: Process, choices: Sequence[Choice], world: World) -> None:
    """process: of the lanes that `lanes` names."""
    passes = _passes([presence for presence, _ in choices])
    where: dict[Task, Block] = {}
    for each in passes:
        process.block(each.block, each.name, each.kind, each.args())
        if (flash := each.flash_block) is not None:
            process.block(flash, f"read for {each.name}", FLASH, {"choices": [index for index, _ in each.parts]})
        for _, charge in each.parts:
            if charge.arrived_ns < charge.start_ns:
                process.wait(Block(charge.cost.device, charge.arrived_ns, charge.start_ns), cause(charge))
            if charge.task is not None:
                where[charge.task] = each.block
    for block in _others([presence for presence, _ in choices], passes):
        process.block(block, "other", "other", {})
    for _, timeline in choices:
        _fill_marks(process, timeline, where, world)


def lanes(presences: Sequence[Presence]) -> list[str]:
    """Every device that was there."""
    return sorted({device for presence in presences for device in presence.busy_spans})


def _fill_marks(process: Process, timeline: Timeline, where: dict[Task, Block], world: World) -> None:
    for flow in timeline.flows:
        if flow.source in where and flow.target in where:
            process.arrow(where[flow.source], where[flow.target], "judged")
    for mark in timeline.marks:
        assert mark.emulated_ns is not None
        block = where.get(mark.task) if mark.task is not None else None
        lane = block.lane if block is not None else world.hardware.device_of(mark.role)
        process.instant(lane, mark.emulated_ns, mark.what)


def _passes(presences: Sequence[Presence]) -> list[_Pass]:
    """In the order of their beginnings. A device holds one at a time."""
    passes: dict[tuple[int, int], _Pass] = {}
    for index, presence in enumerate(presences):
        for charge in presence.charges:
            passes.setdefault(charge.pass_key, _Pass()).parts.append((index, charge))
    return sorted(passes.values(), key=lambda each: (each.block.begin_ns, each.block.end_ns))


def _others(presences: Sequence[Presence], passes: Sequence[_Pass]) -> Iterator[Block]:
    """When devices were busy, and with nothing of this request."""
    for device in lanes(presences):
        busy = sorted(set(chain.from_iterable(presence.busy_spans[device] for presence in presences)))
        blocks = [block for each in passes for block in (each.block, each.flash_block) if block is not None]
        own = sorted((block.begin_ns, block.end_ns) for block in blocks if block.lane == device)
        yield from (Block(device, *span) for span in _without(_joined(busy), own))


def _joined(spans: Sequence[Span]) -> Iterator[Span]:
    """One that several choices saw, some of them not to its end, once and whole."""
    for place, (begin_ns, end_ns) in enumerate(spans):
        if place + 1 == len(spans) or spans[place + 1][0] >= end_ns:
            yield begin_ns, end_ns


def _without(spans: Iterator[Span], own: Sequence[Span]) -> Iterator[Span]:
    """Those that are not, clipped or whole, among `own`. Both are in order."""
    place = 0
    for begin_ns, end_ns in spans:
        while place < len(own) and own[place][1] <= begin_ns:
            place += 1
        if place == len(own) or own[place][0] >= end_ns:
            yield begin_ns, end_ns
