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
from orchestrator.timeline.task import CURRENT, Task
from orchestrator.units.role_queue import RoleQueue
from orchestrator.units.work import head_rows_of


@dataclass(frozen=True, slots=True)
class _Item:
    work: Work
    rows: int
    arrived_ns: int
    owner: Presence
    task: Task | None
    over: asyncio.Future[None]


@dataclass(frozen=True, slots=True)
class _Running:
    """charge: its place among those of the item's owner."""

    item: _Item
    began_ns: int
    cost: Cost
    charge: int


class KnownQueue(RoleQueue):
    """One task a pass, in the order of their arrivals."""

    def __init__(self, world: World, role: Role) -> None:
        self._world = world
        self._role = role
        self._waiting: deque[_Item] = deque()
        self._is_busy = False
        self._running: _Running | None = None  # whose cost is known
        world.open(self)

    async def perform(self, work: Work, rows: int) -> None:
        """Takes the time and the energy of the work; when cancelled, of what has been done of it by then."""
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        item = _Item(work, rows, self._world.now_ns(), present(), CURRENT.get(), over)
        self._waiting.append(item)
        try:
            await self._world.hand_over(over)
        except asyncio.CancelledError:
            if self._running is not None and self._running.item is item:
                self._cut(self._running)
            raise

    @property
    def ready_ns(self) -> int | None:
        while self._waiting and self._waiting[0].over.cancelled():
            self._waiting.popleft()
        return None if self._is_busy or not self._waiting else self._waiting[0].arrived_ns

    def send(self) -> None:
        item, began_ns = self._waiting.popleft(), self._world.now_ns()
        self._is_busy = True
        self._world.sent(self)

        def end_ns() -> int:
            cost = self._world.hardware.begin(item.work, began_ns)
            self._running = _Running(item, began_ns, cost, len(item.owner.charges))
            item.owner.charges.append(self._charge(item, began_ns, cost))
            return began_ns + cost.duration_ns

        def over(fault: NotPriced | None) -> None:
            self._is_busy, self._running = False, None
            if fault is None:
                self._world.wake(item.over, None)
            else:
                self._world.fail(item.over, fault)

        self._world.answered(self, end_ns, over)

    def _cut(self, running: _Running) -> None:
        cost = self._world.hardware.cut(running.cost, running.began_ns, self._world.now_ns())
        running.item.owner.charges[running.charge] = self._charge(running.item, running.began_ns, cost)
        self._world.cut(self, running.began_ns + cost.duration_ns)

    def _charge(self, item: _Item, began_ns: int, cost: Cost) -> Charge:
        return Charge(
            self._role.value,
            item.owner.round,
            item.arrived_ns,
            began_ns,
            item.rows,
            item.rows,
            cost,
            tuple(cost.uses),
            item.task,
            head_rows_of(item.work),
        )
