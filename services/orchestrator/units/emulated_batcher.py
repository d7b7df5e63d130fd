"""A batcher whose unit plays a device of an emulated world: passes begin and end when the world says so."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from hetspec.hardware.cost import Cost, Use, split
from hetspec.hardware.platform import Role
from hetspec.rpc.messages import UnitError, WorkTrace
from orchestrator.clock.presence import Charge, Presence, present
from orchestrator.clock.world import NotPriced, World
from orchestrator.policies.batching import PassLimits
from orchestrator.units.batcher import Batcher, Entry, Served
from orchestrator.units.errors import FAULTS, Nonsense, UnitLost
from orchestrator.units.link import Link, Outcome
from orchestrator.units.metrics import LinkMetrics
from orchestrator.units.role_queue import RoleQueue
from orchestrator.units.work import charged_rows, head_rows_of, work_of

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class _Place:
    """Of an entry in the world. owner: the session it is for."""

    arrived_ns: int
    owner: Presence

    @property
    def order(self) -> tuple[int, int]:
        return self.arrived_ns, self.owner.number


@dataclass(frozen=True, slots=True)
class _Charged:
    """What a pass was charged at. places: of each of its sessions, and where among its charges."""

    cost: Cost
    rows: list[int]
    places: list[tuple[Presence, int]]


class EmulatedBatcher(RoleQueue, Batcher[Item, Result], Generic[Item, Result]):
    def __init__(
        self, link: Link[Item, Result], limits: PassLimits, metrics: LinkMetrics, world: World, role: Role
    ) -> None:
        super().__init__(link, limits, metrics)
        self._world = world
        self._role = role
        self._places: dict[Entry[Item, Result], _Place] = {}
        self._composed: list[Item] = []  # for the link to fetch
        self._began_ns = 0
        self._ending: list[Entry[Item, Result]] = []  # answered; the world has not come to the end of their pass
        self._charged: _Charged | None = None  # for the pass of these
        world.open(self)

    def __len__(self) -> int:
        return super().__len__() + len(self._ending)

    # --- what the world asks

    @property
    def ready_ns(self) -> int | None:
        if self._flying or self._ending:
            return None
        waiting = (self._places[entry].arrived_ns for entry in self._waiting if entry in self._places)
        return min(waiting, default=None)

    def send(self) -> None:
        # The order in which sessions got on at the same emulated time is the host's.
        there = [entry for entry in self._waiting if entry in self._places]
        self._waiting = sorted(there, key=lambda entry: self._places[entry].order)
        self._composed = super().next_pass()
        self._began_ns = self._world.now_ns()
        self._world.sent(self)
        self._link.wake()

    # --- what the link asks

    def next_pass(self) -> list[Item]:
        composed, self._composed = self._composed, []
        return composed

    def lose(self, lost: UnitLost) -> None:
        super().lose(lost)
        self._fail(self._ending, lost)
        self._ending, self._composed, self._charged = [], [], None
        self._world.close(self)

    # --- entries

    async def _wait_for(self, entry: Entry[Item, Result]) -> Served[Result]:
        self._places[entry] = _Place(self._world.now_ns(), present())
        try:
            return await self._world.hand_over(entry.result)
        finally:
            del self._places[entry]

    def _hand_out(
        self, entries: Sequence[Entry[Item, Result]], outcome: Outcome[Result] | UnitError | Nonsense
    ) -> None:
        """When the pass is over, in the world. One that was refused took no time there."""
        self._ending, tell = list(entries), super()._hand_out

        def end_ns() -> int:
            if not isinstance(outcome, Outcome):
                return self._began_ns
            served = [e for e, value in zip(entries, outcome.items, strict=True) if not isinstance(value, FAULTS)]
            return self._charge(served, outcome.trace) if served else self._began_ns

        def over(fault: NotPriced | None) -> None:
            self._charged = None
            if self._ending:
                self._ending = []
                if fault is None:
                    tell(entries, outcome)
                else:
                    self._fail(entries, fault)

        self._world.answered(self, end_ns, over)

    def _charge(self, entries: Sequence[Entry[Item, Result]], trace: WorkTrace) -> int:
        """When the pass ends. What it costs is split by rows; the part of sessions that are gone is nobody's."""
        work = work_of(self._role, [entry.item for entry in entries], trace)
        cost = self._world.hardware.begin(work, self._began_ns)
        rows = [charged_rows(self._role, entry.item, entry.rows) for entry in entries]
        self._charged = _Charged(cost, rows, [])
        for entry, own_rows, uses in zip(entries, rows, _shares(cost, rows), strict=True):
            if (place := self._places.get(entry)) is None:
                self._world.spend_unowned(uses)
                continue
            charge = Charge(
                self._role.value,
                place.owner.round,
                place.arrived_ns,
                self._began_ns,
                own_rows,
                sum(rows),
                cost,
                uses,
                entry.task,
                head_rows_of(work),
            )
            self._charged.places.append((place.owner, len(place.owner.charges)))
            place.owner.charges.append(charge)
        return self._began_ns + cost.duration_ns

    def _cut(self) -> None:
        """A pass whose result nobody waits for any more ends with what its device does just now."""
        charged, self._charged = self._charged, None
        if charged is None or len(charged.places) != len(charged.rows):
            return
        cost = self._world.hardware.cut(charged.cost, self._began_ns, self._world.now_ns())
        for (owner, index), uses in zip(charged.places, _shares(cost, charged.rows), strict=True):
            owner.charges[index] = replace(owner.charges[index], cost=cost, uses=uses)
        self._world.cut(self, self._began_ns + cost.duration_ns)

    def _give(self, entry: Entry[Item, Result], served: Served[Result]) -> None:
        self._world.wake(entry.result, served)

    def _fail(self, entries: Iterable[Entry[Item, Result]], fault: Exception) -> None:
        for entry in entries:
            self._world.fail(entry.result, fault)

    def _cancel_if_abandoned(self) -> None:
        if self._composed and all(entry.result.cancelled() for entry in self._flying):
            self._flying, self._composed = [], []  # the unit has not been told of it
            self._world.dropped(self)
            return
        if self._ending and all(entry.result.cancelled() for entry in self._ending):
            self._cut()
            return
        was_flying = bool(self._flying)
        super()._cancel_if_abandoned()
        if was_flying and not self._flying:
            self._world.dropped(self)


def _shares(cost: Cost, rows: Sequence[int]) -> list[tuple[Use, ...]]:
    """Of the energy, by rows."""
    parts = [split(use.energy_pj, rows) for use in cost.uses]
    return [
        tuple(Use(use.device, use.component, part[i]) for use, part in zip(cost.uses, parts, strict=True))
        for i in range(len(rows))
    ]
