"""Every replica of one unit, found by address: later ones join, lost ones leave and may come back."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from hetspec.rpc.contracts import Contract
from hetspec.rpc.logs import log_event
from orchestrator.policies.batching import PassLimits
from orchestrator.units.errors import NoReplica, UnitLost
from orchestrator.units.link import Link
from orchestrator.units.replica import Replica
from orchestrator.units.resolve import parse_addresses, resolve
from orchestrator.units.settings import ReplicaSettings

Item = TypeVar("Item")
Result = TypeVar("Result")


class ReplicaSet(Generic[Item, Result]):
    """addresses: "host:port" or several, comma-separated; a name that resolves to several addresses means all of them.

    Only replicas of equal digest serve one session: `pick` keeps to the digest it is given, and starts new sessions on
    the digest of the replica that has been there longest.
    """

    def __init__(
        self,
        contract: Contract[Item, Result],
        addresses: str,
        limits: Callable[[Any], PassLimits],
        settings: ReplicaSettings,
    ) -> None:
        self.unit = contract.unit
        self._contract = contract
        self._names = parse_addresses(addresses)
        self._limits = limits
        self._settings = settings
        self._replicas: list[Replica[Item, Result]] = []  # alive, oldest first
        self._connectors: dict[str, asyncio.Task[None]] = {}
        self._resolver: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()

    def start(self) -> None:
        self._resolver = asyncio.create_task(self._follow_addresses())

    async def close(self) -> None:
        tasks = [*self._connectors.values(), *([self._resolver] if self._resolver else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def replicas(self) -> tuple[Replica[Item, Result], ...]:
        return tuple(self._replicas)

    @property
    def description(self) -> Any | None:
        """Describe's answer of the replica that has been there longest."""
        return self._replicas[0].description if self._replicas else None

    def try_pick(self, digest: str | None = None, avoid: object = None) -> Replica[Item, Result] | None:
        """The least loaded replica; another one than `avoid`, where there is one."""
        if not self._replicas:
            return None
        digest = self._replicas[0].digest if digest is None else digest
        fitting = [replica for replica in self._replicas if replica.alive and replica.digest == digest]
        return min(fitting, key=lambda replica: (replica is avoid, replica.load), default=None)

    async def pick(self, digest: str | None = None, avoid: object = None) -> Replica[Item, Result]:
        """Waits for a replica to be there. Raises NoReplica after `wait_s`."""
        if (replica := self.try_pick(digest, avoid)) is not None:
            return replica
        try:
            async with asyncio.timeout(self._settings.wait_s):
                while (replica := self.try_pick(digest, avoid)) is None:
                    self._changed.clear()
                    await self._changed.wait()
                return replica
        except TimeoutError:
            raise NoReplica(f"no {self.unit} for {self._settings.wait_s:g} s") from None

    async def _follow_addresses(self) -> None:
        while True:
            addresses = await resolve(self._names)
            for address in addresses - self._connectors.keys():
                self._connectors[address] = asyncio.create_task(self._keep_connected(address))
            for address in self._connectors.keys() - addresses:
                if not any(replica.address == address for replica in self._replicas):
                    self._connectors.pop(address).cancel()
            await asyncio.sleep(self._settings.resolve_every_s)

    async def _keep_connected(self, address: str) -> None:
        first_s, longest_s = self._settings.backoff_s
        pause_s, reason = first_s, ""
        while True:
            try:
                link = await Link.open(self._contract, address, self._settings.link)
            except UnitLost as lost:
                if str(lost) != reason:
                    reason = str(lost)
                    log_event("unit not reached", unit=self.unit, address=address, reason=reason)
                await asyncio.sleep(pause_s * random.uniform(0.8, 1.2))
                pause_s = min(2 * pause_s, longest_s)
                continue
            await self._carry(Replica(address, link, self._limits))
            pause_s, reason = first_s, ""
            await asyncio.sleep(pause_s)

    async def _carry(self, replica: Replica[Item, Result]) -> None:
        identity = replica.description.identity
        log_event("unit found", unit=self.unit, address=replica.address, instance=identity.instance)
        self._replicas.append(replica)
        self._changed.set()
        try:
            lost = await replica.run()
            log_event("unit lost", unit=self.unit, address=replica.address, reason=str(lost))
        finally:
            self._replicas.remove(replica)
