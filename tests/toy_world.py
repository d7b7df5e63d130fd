"""A world of toy hardware and toy units: every task takes what it is asked to take."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hetspec.hardware.cost import Component, Cost, Use
from orchestrator.clock.clock import Arrival
from orchestrator.clock.devices import Devices
from orchestrator.clock.pace import Pace, Unpaced
from orchestrator.clock.presence import PRESENT, Charge, Presence
from orchestrator.clock.world import NotPriced, World
from orchestrator.timeline.task import CURRENT, Task

STATIC_UW = {"npu": 100_003, "cpu": 7_001, "dram": 50_000}
DYNAMIC_PJ = 3  # a nanosecond of a task


class ToyHardware:
    """Two devices and a memory that draws power."""

    static_uw = STATIC_UW

    def __init__(self) -> None:
        self.devices = Devices(["cpu", "npu"], None)


@dataclass(slots=True, eq=False)
class _Task:
    arrived_ns: int
    owner: Presence
    asked: Task | None
    cost_ns: int
    result: asyncio.Future[int]


class ToyUnit:
    """One task at a time. delay: turns of the event loop that its host takes to answer."""

    def __init__(self, world: World, device: str, place: int = 0, delay: Callable[[], int] = lambda: 0) -> None:
        self.device, self.place = device, place
        self._world, self._delay = world, delay
        self._waiting: list[_Task] = []
        self._held: _Task | None = None
        self.is_priced = False  # whether the world knows when what is held ends
        self.spans: list[tuple[int, int]] = []
        self._answering: set[asyncio.Task[None]] = set()
        world.open(self)

    async def ask(self, cost_ns: int) -> int:
        """When the task has ended. A negative cost is one that nobody can price."""
        owner = PRESENT.get()
        assert owner is not None
        result = asyncio.get_running_loop().create_future()
        task = _Task(self._world.now_ns(), owner, CURRENT.get(), cost_ns, result)
        self._waiting.append(task)
        try:
            return await self._world.hand_over(task.result)
        finally:
            if task in self._waiting:
                self._waiting.remove(task)

    @property
    def ready_ns(self) -> int | None:
        if self._held is not None:
            return None
        return min((task.arrived_ns for task in self._waiting), default=None)

    def send(self) -> None:
        task = min(self._waiting, key=lambda waiting: (waiting.arrived_ns, waiting.owner.number))
        self._waiting.remove(task)
        self._held, self.is_priced = task, False
        self._world.sent(self)
        answering = asyncio.create_task(self._answer(task, self._world.now_ns()))
        self._answering.add(answering)
        answering.add_done_callback(self._answering.discard)

    def lose(self) -> None:
        """The unit is gone, and with it what it held and what waited for it."""
        for task in [*([self._held] if self._held else []), *self._waiting]:
            self._world.fail(task.result, ConnectionError("lost"))
        self._held, self._waiting = None, []
        self._world.close(self)

    async def _answer(self, task: _Task, began_ns: int) -> None:
        for _ in range(self._delay()):
            await asyncio.sleep(0)

        def end_ns() -> int:
            if task.cost_ns < 0:
                raise ValueError("outside the table")
            use = Use(self.device, Component.COMPUTE, DYNAMIC_PJ * task.cost_ns)
            cost = Cost(self.device, {Component.COMPUTE: task.cost_ns}, (use,))
            self._world.hardware.devices.hold(began_ns, cost, {})
            self.spans.append((began_ns, began_ns + task.cost_ns))
            self.is_priced = True
            if task.result.done():
                self._world.spend_unowned([use])
            else:
                charge = Charge("toy", 0, task.arrived_ns, began_ns, 1, 1, cost, (use,), task.asked)
                task.owner.charges.append(charge)
            return began_ns + task.cost_ns

        def tell(fault: NotPriced | None) -> None:
            if self._held is not task:
                return
            self._held = None
            if fault is None:
                self._world.wake(task.result, self._world.now_ns())
            else:
                self._world.fail(task.result, fault)

        self._world.answered(self, end_ns, tell)


@dataclass
class ToyWorld:
    """npu and cpu: a unit on each device."""

    delay: Callable[[], int] = lambda: 0
    pace: Pace = field(default_factory=Unpaced)

    def __post_init__(self) -> None:
        hardware: Any = ToyHardware()
        self.world = World(hardware, self.pace)
        self.npu = ToyUnit(self.world, "npu", 0, self.delay)
        self.cpu = ToyUnit(self.world, "cpu", 1, self.delay)

    async def session(self, *tasks: tuple[ToyUnit, int], after_ns: int = 0, sessions: int = 1) -> Presence:
        """Does its tasks one after another."""
        async with self.world.present(Arrival(after_ns, sessions)) as presence:
            assert presence is not None
            for unit, cost_ns in tasks:
                presence.emitted(1, await unit.ask(cost_ns))
        return presence
