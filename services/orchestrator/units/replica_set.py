"""Every replica of one unit, found by address: later ones join, lost ones leave and may come back."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Generic, TypeVar

from prometheus_client import CollectorRegistry

from hetspec.rpc.contracts import Contract
from hetspec.rpc.logs import log_event
from hetspec.rpc.tls import RpcTls
from orchestrator.policies.batching import PassLimits
from orchestrator.policies.placement import placement_cost
from orchestrator.units.batcher import Batcher
from orchestrator.units.errors import NoReplica, UnitLost
from orchestrator.units.link import Link
from orchestrator.units.metrics import LinkMetrics, UnitsMetrics
from orchestrator.units.prefix_source import Ids
from orchestrator.units.replica import MakeBatcher, Replica
from orchestrator.units.resolve import Find, resolver
from orchestrator.units.settings import PrefixSettings, ReplicaSettings

Item = TypeVar("Item")
Result = TypeVar("Result")

_NO_PREFIXES = PrefixSettings(tokens="0")


class _Doubt:
    """How long a unit that answers nonsense is left alone: twice as long every time, until it is sound for a while."""

    def __init__(self, first_s: float, longest_s: float) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._next_s = first_s
        self._over = 0.0  # in the event loop's time

    def pause_s(self, replica: Replica[Any, Any]) -> float:
        """After a replica's end; 0 for one that was sound."""
        if not replica.distrusted:
            return 0.0
        now = asyncio.get_running_loop().time()
        if now - self._over > self._longest_s:
            self._next_s = self._first_s
        pause_s, self._next_s = self._next_s, min(2 * self._next_s, self._longest_s)
        self._over = now + pause_s
        return pause_s


class ReplicaSet(Generic[Item, Result]):
    """addresses: "host:port" or several, comma-separated; a name that resolves to several addresses means all of them.
    Or what finds them.

    Only replicas of equal digest serve one session: `pick` keeps to the digest it is given, and starts new sessions on
    the digest of the replica that has been there longest. fingerprint: of the checkpoint that replicas must serve, once
    it is known; others are left alone. withholds: whether a replica is to take no sessions yet.
    """

    def __init__(
        self,
        contract: Contract[Item, Result],
        addresses: str | Find,
        limits: Callable[[Any], PassLimits],
        settings: ReplicaSettings,
        tls: RpcTls | None = None,
        prefixes: PrefixSettings = _NO_PREFIXES,
        metrics: LinkMetrics | None = None,
        batchers: MakeBatcher = Batcher,
    ) -> None:
        self.unit = contract.unit
        self.fingerprint: str | None = None
        self.withholds: Callable[[Replica[Item, Result]], bool] = lambda replica: False
        self._contract = contract
        self._find = resolver(addresses) if isinstance(addresses, str) else addresses
        self._limits = limits
        self._settings = settings
        self._tls = tls
        self._prefixes = prefixes
        self._batchers = batchers
        self._metrics = metrics or UnitsMetrics(CollectorRegistry()).of(self.unit)
        self._metrics.watch(lambda: len(self.replicas))
        self._metrics.prefixes.watch(
            entries=lambda: sum(len(replica.prefixes) for replica in self._replicas),
            held_tokens=lambda: sum(replica.prefixes.held_tokens for replica in self._replicas),
        )
        self._replicas: list[Replica[Item, Result]] = []  # alive, oldest first
        self._connectors: dict[str, asyncio.Task[None]] = {}
        self._resolver: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._look = asyncio.Event()
        self._followers: list[ReplicaSet[Any, Any]] = []

    def start(self) -> None:
        self._resolver = asyncio.create_task(self._follow_addresses())

    async def close(self) -> None:
        tasks = [*self._connectors.values(), *([self._resolver] if self._resolver else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def leads(self, follower: ReplicaSet[Any, Any]) -> None:
        """The follower's addresses depend on what is found here: it looks again at once."""
        self._followers.append(follower)

    def look_again(self) -> None:
        """For addresses, without waiting for the next time."""
        self._look.set()

    @property
    def reached(self) -> tuple[Replica[Item, Result], ...]:
        """All that are connected, oldest first."""
        return tuple(self._replicas)

    @property
    def replicas(self) -> tuple[Replica[Item, Result], ...]:
        """Those that take sessions, oldest first."""
        taking = (replica for replica in self._replicas if replica.takes_sessions and not self._is_strange(replica))
        return tuple(replica for replica in taking if not self.withholds(replica))

    @property
    def strangers(self) -> tuple[Replica[Item, Result], ...]:
        """Those that serve another checkpoint."""
        return tuple(replica for replica in self._replicas if self._is_strange(replica))

    @property
    def description(self) -> Any | None:
        """Describe's answer of the replica that has been there longest."""
        return next((replica.description for replica in self.replicas), None)

    @property
    def loads(self) -> dict[str, tuple[int, int]]:
        """Of every address that is known, reached or not: its replica's load."""
        return dict.fromkeys(self._connectors, (0, 0)) | {replica.address: replica.load for replica in self._replicas}

    def try_pick(
        self, digest: str | None = None, avoid: object = None, ids: Ids | None = None
    ) -> Replica[Item, Result] | None:
        """The least loaded replica; another one than `avoid`, where there is one.

        ids: what the session will read; a replica that has much of it already may be busier (`placement_cost`).
        """
        if not (replicas := self.replicas):
            return None
        digest = replicas[0].digest if digest is None else digest
        fitting = [replica for replica in replicas if replica.digest == digest]

        def preference(replica: Replica[Item, Result]) -> tuple[bool, float, tuple[int, int]]:
            spared = 0 if ids is None else replica.prefixes.promise(ids)
            return replica is avoid, placement_cost(replica.load[0], spared), replica.load

        return min(fitting, key=preference, default=None)

    def at(self, address: str, digest: str) -> Replica[Item, Result] | None:
        """The replica there, where it is of this digest."""
        there = (replica for replica in self.replicas if replica.address == address)
        return next((replica for replica in there if replica.digest == digest), None)

    async def pick(
        self, digest: str | None = None, avoid: object = None, ids: Ids | None = None
    ) -> Replica[Item, Result]:
        """Waits for a replica to be there. Raises NoReplica after `wait_s`."""
        if (replica := self.try_pick(digest, avoid, ids)) is not None:
            return replica
        try:
            async with asyncio.timeout(self._settings.wait_s):
                while (replica := self.try_pick(digest, avoid, ids)) is None:
                    self._changed.clear()
                    await self._changed.wait()
                return replica
        except TimeoutError:
            others = f": {len(self.replicas)} there, none of digest {digest}" if self.replicas else ""
            raise NoReplica(f"no {self.unit} for {self._settings.wait_s:g} s{others}") from None

    def _is_strange(self, replica: Replica[Item, Result]) -> bool:
        return self.fingerprint not in (None, replica.description.identity.fingerprint)

    def has(self, instance: str) -> bool:
        """Whether this incarnation of a unit is there."""
        return any(r.alive and r.description.identity.instance == instance for r in self._replicas)

    async def _follow_addresses(self) -> None:
        while True:
            self._look.clear()
            addresses = await self._find()
            for address in addresses - self._connectors.keys():
                self._connectors[address] = asyncio.create_task(self._keep_connected(address))
            for address in self._connectors.keys() - addresses:
                if not any(replica.address == address for replica in self._replicas):
                    self._connectors.pop(address).cancel()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._settings.resolve_every_s):
                    await self._look.wait()

    async def _keep_connected(self, address: str) -> None:
        first_s, longest_s = self._settings.backoff_s
        pause_s, reason = first_s, ""
        doubt = _Doubt(*self._settings.doubt_s)
        while True:
            try:
                link = await self._open(address)
            except UnitLost as lost:
                new_reason = str(lost).partition("; last error")[0]  # worded differently from one attempt to the next
                if new_reason != reason:
                    reason = new_reason
                    log_event("unit not reached", unit=self.unit, address=address, reason=str(lost))
                await asyncio.sleep(pause_s * random.uniform(0.8, 1.2))
                pause_s = min(2 * pause_s, longest_s)
                continue
            replica = Replica(address, link, self._limits, self._prefixes, self._metrics, self._batchers)
            await self._carry(replica)
            pause_s, reason = first_s, ""
            await asyncio.sleep(doubt.pause_s(replica) or pause_s)

    async def _open(self, address: str) -> Link[Item, Result]:
        """Raises UnitLost, also for a unit that is here already by another of its addresses."""
        link = await Link.open(self._contract, address, self._settings.link, self._tls)
        instance = link.description.identity.instance
        twin = next((r for r in self._replicas if instance and r.description.identity.instance == instance), None)
        if twin is not None:
            await link.close()
            raise UnitLost(f"{self.unit} at {address} is the one at {twin.address}")
        return link

    async def _carry(self, replica: Replica[Item, Result]) -> None:
        identity = replica.description.identity
        log_event("unit found", unit=self.unit, address=replica.address, instance=identity.instance)
        self._metrics.found.inc()
        self._replicas.append(replica)
        self._changed.set()
        for follower in self._followers:
            follower.look_again()
        try:
            lost = await replica.run()
            log_event("unit lost", unit=self.unit, address=replica.address, reason=str(lost))
        finally:
            self._metrics.lost.inc()
            self._replicas.remove(replica)
