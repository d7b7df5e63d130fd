"""One incarnation of a unit: from the moment it is reached to the moment it is lost. A restarted unit is another."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from orchestrator.policies.batching import PassLimits
from orchestrator.policies.seen_passes import SeenPass
from orchestrator.timeline.task import CURRENT
from orchestrator.units.batcher import Batcher, Served
from orchestrator.units.errors import Nonsense, UnitLost
from orchestrator.units.link import Link
from orchestrator.units.metrics import LinkMetrics
from orchestrator.units.prefix_cache import PrefixCache
from orchestrator.units.prefix_source import Ids
from orchestrator.units.settings import PrefixSettings

Item = TypeVar("Item")
Result = TypeVar("Result")
MakeBatcher = Callable[[Link[Any, Any], PassLimits, LinkMetrics], Batcher[Any, Any]]


class Replica(Generic[Item, Result]):
    """Sessions are pinned to it by `pin` and leave by `release`, which frees what the unit holds for them, or by
    `keep`, which may leave it there for sessions to come."""

    def __init__(
        self,
        address: str,
        link: Link[Item, Result],
        limits: Callable[[Any], PassLimits],
        prefixes: PrefixSettings,
        metrics: LinkMetrics,
        batchers: MakeBatcher = Batcher,
    ) -> None:
        self.address = address
        self.description = link.description
        self._link = link
        self._metrics = metrics
        self._batcher = batchers(link, limits(link.description), metrics)
        self._sessions: set[str] = set()
        self.prefixes = PrefixCache(
            getattr(link.description, "kv_capacity_tokens", 0),  # samplers hold none
            getattr(link.description, "kv_page_tokens", 0),
            prefixes,
            metrics.prefixes,
            link.release,
            asyncio.get_running_loop(),
        )

    @property
    def alive(self) -> bool:
        return self._link.alive

    @property
    def takes_sessions(self) -> bool:
        """Not once the unit has been told to end; the sessions it has stay there."""
        return self._link.alive and not self._link.draining

    @property
    def distrusted(self) -> bool:
        return self._link.distrusted

    @property
    def digest(self) -> str:
        digest: str = self.description.identity.digest
        return digest

    @property
    def load(self) -> tuple[int, int]:
        """Orders replicas: sessions pinned, then items under way."""
        return len(self._sessions), len(self._batcher)

    @property
    def passes(self) -> Sequence[SeenPass]:
        """Those answered lately that read no prompt."""
        return self._batcher.passes

    def pin(self, session: str) -> None:
        self._sessions.add(session)

    def release(self, session: str) -> None:
        if session in self._sessions:
            self._sessions.discard(session)
            self.prefixes.leave(session)
            self._link.release([session])

    def keep(self, session: str, ids: Ids) -> None:
        """ids: what the unit has committed of the session, which has ended well."""
        if self.takes_sessions and self.prefixes.keep(session, ids):
            self._sessions.discard(session)
        else:
            self.release(session)

    async def submit(self, item: Item, rows: int, is_prompt: bool = False, alone: bool = False) -> Served[Result]:
        """Raises UnitError, Nonsense or UnitLost. alone: it shares its pass with no other item."""
        if (task := CURRENT.get()) is not None:
            task.address = self.address
        return await self._batcher.submit(item, rows, is_prompt, alone)

    def blame(self, fault: Exception) -> None:
        """Counts it. A unit that answered nonsense is given up, and tried again after a while."""
        self._metrics.fault(fault)
        if isinstance(fault, Nonsense):
            self._link.distrust(f"answered nonsense: {fault}")

    async def run(self) -> UnitLost:
        """Carries the traffic until the unit is lost; returns why."""
        try:
            return await self._link.run(self._batcher, lambda: bool(self._sessions) or len(self._batcher) > 0)
        finally:
            self.prefixes.close()
