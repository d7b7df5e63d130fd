"""One service as GET /v1/hetspec/units tells of it, and how fast it went between two looks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from hetspec_client.answers import Extensible


@dataclass(frozen=True, slots=True)
class Service(Extensible):
    """Seconds, tasks, rows, tokens: since its start. None: there is no such thing in it. problem: why it is silent."""

    unit: str
    replica: int
    address: str
    problem: str | None
    instance: str
    model: str
    precision: str
    digest: str
    threads: int
    uptime_seconds: float
    busy_seconds: float
    tasks: int
    rows: int
    running: int
    queued: int
    sessions: int | None
    kv_held_tokens: int | None
    kv_capacity_tokens: int | None
    leases: int | None
    generated_tokens: int | None
    verified_tokens: int | None
    accepted_tokens: int | None

    @property
    def name(self) -> str:
        return f"{self.unit}-{self.replica}"


@dataclass(frozen=True, slots=True)
class Load:
    """A service now, and its rates. busy_share: of the time. acceptance: of the verified nodes, those kept."""

    service: Service
    busy_share: float
    tasks_per_s: float
    rows_per_s: float
    tokens_per_s: float | None
    acceptance: float | None

    @classmethod
    def between(cls, earlier: Service | None, now: Service) -> Self:
        """By the service's own clock. earlier: None, or of another life of it: the rates since its start."""
        if earlier is None or earlier.instance != now.instance or earlier.problem is not None:
            earlier = None
        seconds = now.uptime_seconds - (earlier.uptime_seconds if earlier else 0.0)

        def grown(field: str) -> float:
            return float((getattr(now, field) or 0) - ((getattr(earlier, field) or 0) if earlier else 0))

        def rate(field: str) -> float:
            return grown(field) / seconds if seconds > 0 else 0.0

        tells_tokens, verified = now.generated_tokens is not None, grown("verified_tokens")
        return cls(
            now,
            busy_share=rate("busy_seconds"),
            tasks_per_s=rate("tasks"),
            rows_per_s=rate("rows"),
            tokens_per_s=rate("generated_tokens") if tells_tokens else None,
            acceptance=grown("accepted_tokens") / verified if verified else None,
        )


def parse_services(told: Mapping[str, Any]) -> list[Service]:
    return [Service.parse(service) for service in told["data"]]


def loads(earlier: Iterable[Service], now: Iterable[Service]) -> list[Load]:
    """In the order of `now`."""
    known = {(service.unit, service.address): service for service in earlier}
    return [Load.between(known.get((service.unit, service.address)), service) for service in now]
