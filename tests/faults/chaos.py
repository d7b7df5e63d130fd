"""What can befall a service, each as it begins and ends; and all of it at random."""

from __future__ import annotations

import asyncio
import random
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.faults.cluster import PATIENCE_S, Cluster, Member
from tests.faults.puppet import lies_of
from tests.faults.traffic import Traffic
from tests.faults.unsteady import InLoop, Unsteady

Fault = Callable[[Any, Any, random.Random], Awaitable[None]]
AT_ONCE = 4
MEAN_GAP_S = 1.0


async def killed(cluster: Cluster | Unsteady, member: Member | InLoop, draw: random.Random) -> None:
    member.kill()
    await asyncio.sleep(draw.uniform(0, 1))
    cluster.start(member.name)


async def restarted(cluster: Cluster, member: Member, _: random.Random) -> None:
    member.signal(signal.SIGTERM)
    await member.ended()
    cluster.start(member.name)


async def frozen(_: Cluster, member: Member, draw: random.Random) -> None:
    """For longer than the engine's patience."""
    await _freeze(member, draw.uniform(1.5, 2.2) * PATIENCE_S)


async def frozen_briefly(_: Cluster, member: Member, draw: random.Random) -> None:
    await _freeze(member, draw.uniform(0.05, 0.4) * PATIENCE_S)


async def _freeze(member: Member, seconds: float) -> None:
    member.signal(signal.SIGSTOP)
    await asyncio.sleep(seconds)
    member.signal(signal.SIGCONT)


async def cut_off(_: Cluster, member: Member, draw: random.Random) -> None:
    """For longer than the engine's patience."""
    await _cut(member, draw.uniform(1.5, 2.2) * PATIENCE_S)


async def cut_off_briefly(_: Cluster, member: Member, draw: random.Random) -> None:
    await _cut(member, draw.uniform(0.05, 0.4) * PATIENCE_S)


async def _cut(member: Member, seconds: float) -> None:
    member.proxy.cut()
    await asyncio.sleep(seconds)
    member.proxy.heal()


async def connections_reset(_: Cluster, member: Member, draw: random.Random) -> None:
    member.proxy.break_off(refuse=True)
    await asyncio.sleep(draw.uniform(0, 1))
    member.proxy.heal()


async def slow(_: Cluster, member: Member, draw: random.Random) -> None:
    member.proxy.slow(draw.uniform(0.01, 0.06))
    await asyncio.sleep(draw.uniform(1, 3))
    member.proxy.heal()


async def late(_: Cluster, member: Member, draw: random.Random) -> None:
    member.delay(draw.uniform(0.01, 0.1))
    await asyncio.sleep(draw.uniform(1, 3))
    member.delay(0)


async def nonsense(_: Cluster, member: Member, draw: random.Random) -> None:
    member.lie(draw.choice(lies_of(member.kind)))
    await asyncio.sleep(draw.uniform(0.2, 1.5))
    member.lie("")


async def another_digest(cluster: Cluster, member: Member, draw: random.Random) -> None:
    """It comes back as a machine that computes other bits would, and then as itself."""
    member.kill()
    cluster.start(member.name, PUPPET_DIGEST="other")
    await asyncio.sleep(draw.uniform(3, 6))
    member.kill()
    cluster.start(member.name)


_OF_ANY: tuple[Fault, ...] = (
    killed, restarted, frozen, frozen_briefly, cut_off, cut_off_briefly, connections_reset, slow,
)  # fmt: skip
_OF_UNITS: tuple[Fault, ...] = (*_OF_ANY, late, nonsense, another_digest)


@dataclass
class Report:
    """recovery_s: of each kind, the longest time from a fault until every request that ran then had got on."""

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)  # by kind of fault and of service
    recovery_s: dict[str, float] = field(default_factory=dict)

    def add(self, kind: str, service: str, recovery_s: float) -> None:
        self.counts[kind, service] += 1
        self.recovery_s[kind] = max(recovery_s, self.recovery_s.get(kind, 0.0))

    def table(self) -> str:
        services = ("weight_store", "verifier", "drafter", "sampler")
        lines = ["".join(f"{word:>16}" for word in ("fault", *services, "all", "slowest (s)"))]
        for kind in sorted({kind for kind, _ in self.counts}):
            numbers = [self.counts[kind, service] for service in services]
            cells = (kind.replace("_", " "), *numbers, sum(numbers), f"{self.recovery_s[kind]:.2f}")
            lines.append("".join(f"{cell:>16}" for cell in cells))
        totals = [sum(n for (_, at), n in self.counts.items() if at == service) for service in services]
        return "\n".join([*lines, "".join(f"{cell:>16}" for cell in ("all", *totals, sum(totals), ""))])


class Chaos:
    """At random: which service, what, when and for how long. Up to AT_ONCE are in trouble, or not found again yet.
    faults: which; None: all that there are. mean_gap_s: between two."""

    def __init__(
        self,
        cluster: Cluster | Unsteady,
        traffic: Traffic,
        seed: int,
        faults: Sequence[Fault] | None = None,
        mean_gap_s: float = MEAN_GAP_S,
    ) -> None:
        self._cluster, self._traffic = cluster, traffic
        self._faults, self._mean_gap_s = faults, mean_gap_s
        self._draw = random.Random(seed)
        self._struck: dict[str, Fault] = {}  # by name of the service, while it lasts
        self.report = Report()

    async def strike(self, count: int) -> Report:
        async with asyncio.TaskGroup() as group:
            for _ in range(count):
                await asyncio.sleep(min(self._draw.expovariate(1 / self._mean_gap_s), 3 * self._mean_gap_s))
                while (choice := self._choose()) is None:
                    await asyncio.sleep(0.05)
                member, fault = choice
                self._struck[member.name] = fault
                group.create_task(self._strike(member, fault))
        return self.report

    async def _strike(self, member: Member | InLoop, fault: Fault) -> None:
        recovering = asyncio.create_task(self._traffic.recovery_s())
        try:
            await fault(self._cluster, member, self._draw)
            await self._cluster.until_found(member)
        finally:
            del self._struck[member.name]
        self.report.add(fault.__name__, member.kind, await recovering)

    def _choose(self) -> tuple[Member | InLoop, Fault] | None:
        """None: not now."""
        if len(self._struck) >= AT_ONCE:
            return None
        member = self._draw.choice([m for m in self._cluster.members.values() if m.name not in self._struck])
        fault = self._draw.choice(self._faults or (_OF_ANY if member is self._cluster.store else _OF_UNITS))
        # Requests that began on another digest could be ended nowhere else: one of the old stays undisturbed.
        others = [name for name in self._struck if self._cluster.members[name].kind == member.kind]
        foreign = fault is another_digest or any(self._struck[name] is another_digest for name in others)
        return None if foreign and others else (member, fault)
