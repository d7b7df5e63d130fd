"""What Prometheus reads of the orchestrator's side of its units. docs/observability.md lists every metric."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from hetspec.rpc.messages import UnitError
from orchestrator.units.errors import UnitLost
from orchestrator.units.prefix_metrics import PrefixMetrics

_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)
_ITEMS = (1, 2, 4, 8, 16, 32, 64)
_NS_PER_S = 1e9


class UnitsMetrics:
    """Of all units; `of` gives one unit's."""

    def __init__(self, registry: CollectorRegistry) -> None:
        by_unit = ("unit",)
        self.replicas = Gauge("hetspec_replicas", "Replicas that take sessions.", by_unit, registry=registry)
        self.found = Counter("hetspec_replicas_found", "Replicas reached, again ones too.", by_unit, registry=registry)
        self.lost = Counter("hetspec_replicas_lost", "Replicas that went away.", by_unit, registry=registry)
        self.faults = Counter(
            "hetspec_unit_faults", "What units failed requests with.", ("unit", "reason"), registry=registry
        )
        self.items = Histogram(
            "hetspec_pass_items", "Items sent in one pass.", by_unit, registry=registry, buckets=_ITEMS
        )
        self.wait = Histogram(
            "hetspec_pass_wait_seconds",
            "From an item's arrival at the orchestrator's side of the link to the pass that takes it.",
            by_unit,
            registry=registry,
            buckets=_SECONDS,
        )
        self.round_trip = Histogram(
            "hetspec_pass_seconds",
            "From a pass's sending to its result: queue, computing, transport.",
            by_unit,
            registry=registry,
            buckets=_SECONDS,
        )
        self.prefixes = PrefixMetrics(registry)

    def of(self, unit: str) -> LinkMetrics:
        return LinkMetrics(self, unit)


class LinkMetrics:
    """Of the links to all replicas of one unit."""

    def __init__(self, all_units: UnitsMetrics, unit: str) -> None:
        self._unit = unit
        self._replicas = all_units.replicas.labels(unit)
        self._faults = all_units.faults
        self._items = all_units.items.labels(unit)
        self._wait = all_units.wait.labels(unit)
        self._round_trip = all_units.round_trip.labels(unit)
        self.found = all_units.found.labels(unit)
        self.lost = all_units.lost.labels(unit)
        self.prefixes = all_units.prefixes.of(unit)

    def watch(self, replicas: Callable[[], int]) -> None:
        self._replicas.set_function(replicas)

    def pass_sent(self, waited_ns: list[int]) -> None:
        """waited_ns: of each of its items."""
        self._items.observe(len(waited_ns))
        for wait_ns in waited_ns:
            self._wait.observe(wait_ns / _NS_PER_S)

    def pass_answered(self, round_trip_ns: int) -> None:
        self._round_trip.observe(round_trip_ns / _NS_PER_S)

    def fault(self, fault: Exception) -> None:
        self._faults.labels(self._unit, _reason(fault)).inc()


def _reason(fault: Exception) -> str:
    """An error code in lower case, "lost" or "nonsense"."""
    if isinstance(fault, UnitError):
        return fault.code.name.lower()
    return "lost" if isinstance(fault, UnitLost) else "nonsense"
