"""What Prometheus reads of the prefix caches, by unit, all its replicas together."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge


class PrefixMetrics:
    """Of all units; `of` gives one unit's."""

    def __init__(self, registry: CollectorRegistry) -> None:
        by_unit = ("unit",)
        self.hits = Counter(
            "hetspec_prefix_hits", "Sessions that began with what others had read.", by_unit, registry=registry
        )
        self.misses = Counter("hetspec_prefix_misses", "Sessions that read all they had.", by_unit, registry=registry)
        self.tokens = Counter(
            "hetspec_prefix_reused_tokens", "Tokens that sessions took over from others.", by_unit, registry=registry
        )
        self.evictions = Counter(
            "hetspec_prefix_evictions", "Entries dropped, by reason.", ("unit", "reason"), registry=registry
        )
        self.entries = Gauge("hetspec_prefix_entries", "Entries kept.", by_unit, registry=registry)
        self.held = Gauge(
            "hetspec_prefix_held_tokens", "KV positions that entries hold, whole pages.", by_unit, registry=registry
        )

    def of(self, unit: str) -> UnitPrefixMetrics:
        return UnitPrefixMetrics(self, unit)


class UnitPrefixMetrics:
    def __init__(self, all_units: PrefixMetrics, unit: str) -> None:
        self._unit = unit
        self._hits = all_units.hits.labels(unit)
        self._misses = all_units.misses.labels(unit)
        self._tokens = all_units.tokens.labels(unit)
        self._evictions = all_units.evictions
        self._entries = all_units.entries.labels(unit)
        self._held = all_units.held.labels(unit)

    def watch(self, entries: Callable[[], int], held_tokens: Callable[[], int]) -> None:
        self._entries.set_function(entries)
        self._held.set_function(held_tokens)

    def hit(self, tokens: int) -> None:
        self._hits.inc()
        self._tokens.inc(tokens)

    def miss(self) -> None:
        self._misses.inc()

    def evicted(self, reason: str) -> None:
        self._evictions.labels(self._unit, reason).inc()
