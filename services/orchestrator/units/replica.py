"""One incarnation of a unit: from the moment it is reached to the moment it is lost. A restarted unit is another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from orchestrator.policies.batching import PassLimits
from orchestrator.units.batcher import Batcher, Served
from orchestrator.units.errors import UnitLost
from orchestrator.units.link import Link

Item = TypeVar("Item")
Result = TypeVar("Result")


class Replica(Generic[Item, Result]):
    """Sessions are pinned to it by `pin` and leave by `release`, which frees what the unit holds for them."""

    def __init__(self, address: str, link: Link[Item, Result], limits: Callable[[Any], PassLimits]) -> None:
        self.address = address
        self.description = link.description
        self._link = link
        self._batcher = Batcher(link, limits(link.description))
        self._sessions: set[str] = set()

    @property
    def alive(self) -> bool:
        return self._link.alive

    @property
    def digest(self) -> str:
        digest: str = self.description.identity.digest
        return digest

    @property
    def load(self) -> tuple[int, int]:
        """Orders replicas: sessions pinned, then items under way."""
        return len(self._sessions), len(self._batcher)

    def pin(self, session: str) -> None:
        self._sessions.add(session)

    def release(self, session: str) -> None:
        if session in self._sessions:
            self._sessions.discard(session)
            self._link.release([session])

    async def submit(self, item: Item, rows: int, is_prompt: bool = False) -> Served[Result]:
        return await self._batcher.submit(item, rows, is_prompt)

    async def run(self) -> UnitLost:
        """Carries the traffic until the unit is lost; returns why."""
        return await self._link.run(self._batcher)
