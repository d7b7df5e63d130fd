"""How units are reached: addresses, patience, pauses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from hetspec.rpc.channel import KeepAlive


class Addresses(Protocol):
    """The weight store's "host:port"; of the units, one or several, comma-separated."""

    @property
    def weight_store(self) -> str: ...
    @property
    def verifier(self) -> str: ...
    @property
    def drafter(self) -> str: ...
    @property
    def sampler(self) -> str: ...


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """A unit that has not answered a task `task_timeout_s` plus `slack_s` after it was sent counts as frozen."""

    connect_timeout_s: float = 2.0
    task_timeout_s: float = 60.0  # told to the unit, which gives up by itself
    slack_s: float = 2.0
    keep_alive: KeepAlive = KeepAlive()


@dataclass(frozen=True, slots=True)
class ReplicaSettings:
    link: LinkSettings = LinkSettings()
    resolve_every_s: float = 2.0
    backoff_s: tuple[float, float] = (0.05, 1.0)  # first and longest pause between attempts to connect
    doubt_s: tuple[float, float] = (1.0, 8.0)  # first and longest pause after nonsense
    wait_s: float | None = None  # for a replica, when there is none; None: as long as the request may take


@dataclass(frozen=True, slots=True)
class PrefixSettings:
    """tokens: KV positions that each replica keeps of ended sessions, or a share of all it has ("50%"); "0": none.

    lease_s: for how long without use.
    """

    tokens: str = "50%"
    lease_s: float = 300.0

    def budget_tokens(self, capacity_tokens: int) -> int:
        if self.tokens.endswith("%"):
            return capacity_tokens * int(self.tokens[:-1]) // 100
        return min(int(self.tokens), capacity_tokens)


@dataclass(frozen=True, slots=True)
class FleetSettings:
    verifier: ReplicaSettings = ReplicaSettings()
    sampler: ReplicaSettings = ReplicaSettings()
    # A draft is never worth a long wait: the round goes on without it.
    drafter: ReplicaSettings = ReplicaSettings(LinkSettings(task_timeout_s=10.0, slack_s=1.0))
    prefixes: PrefixSettings = PrefixSettings()
