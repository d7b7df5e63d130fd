"""Tasks of an emulated world that no unit computes: what they come to is known already."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass

from hetspec.hardware.cost import Cost
from hetspec.hardware.platform import Role
from hetspec.hardware.work import Work
from orchestrator.clock.presence import Charge, Presence, present
from orchestrator.clock.world import NotPriced, World
from orchestrator.units.role_queue import RoleQueue


@dataclass(frozen=True, slots=True)
class _Task:
    work: Work
    rows: int
    arrived_ns: int
    owner: Presence
    over: asyncio.Future[None]


class KnownQueue(RoleQueue):
    """One task a pass, in the order of their arrivals."""

    def __init__(self, world: World, role: Role) -> None:
        self._world = world
        self._role = role
        self._waiting: deque[_Task] = deque()
        self._is_busy = False
        world.open(self)

    async def perform(self, work: Work, rows: int) -> None:
        """Takes the time and the energy of the work."""
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Task(work, rows, self._world.now_ns(), present(), over))
        await self._world.hand_over(over)

    @property
    def ready_ns(self) -> int | None:
        while self._waiting and self._waiting[0].over.cancelled():
            self._waiting.popleft()
        return None if self._is_busy or not self._waiting else self._waiting[0].arrived_ns

    def send(self) -> None:
        task, began_ns = self._waiting.popleft(), self._world.now_ns()
        self._is_busy = True
        self._world.sent(self)

        def end_ns() -> int:
            cost = self._world.hardware.begin(task.work, began_ns)
            task.owner.charges.append(self._charge(task, began_ns, cost))
            return began_ns + cost.duration_ns

        def over(fault: NotPriced | None) -> None:
            self._is_busy = False
            if fault is None:
                self._world.wake(task.over, None)
            else:
                self._world.fail(task.over, fault)

        self._world.answered(self, end_ns, over)

    def _charge(self, task: _Task, began_ns: int, cost: Cost) -> Charge:
        return Charge(
            self._role.value, task.owner.round, task.arrived_ns, began_ns, task.rows, task.rows, cost, tuple(cost.uses)
        )
