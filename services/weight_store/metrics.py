"""What Prometheus reads of the weight store. docs/observability.md lists every metric."""

from __future__ import annotations

import time
from collections.abc import Callable

from prometheus_client import Counter, Gauge, Histogram

from hetspec.telemetry.counters import Counters
from hetspec.telemetry.registry import new_registry
from hetspec.v1 import common_pb2

_READ_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0)
_READS, _READING = "hetspec_store_read_seconds_count", "hetspec_store_read_seconds_sum"
_PACKING, _SERVED = "hetspec_store_pack_seconds_sum", "hetspec_store_served_bytes_total"
_PACK_SECONDS = (0.01, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


class StoreMetrics:
    """Thread-safe."""

    def __init__(self, leases: Callable[[], int]) -> None:
        self.registry = registry = new_registry()
        self._since_s = time.monotonic()
        Gauge("hetspec_store_leases", "Leases in force.", registry=registry).set_function(leases)
        self.granted = Counter(
            "hetspec_store_leases_granted", "Leases granted.", ("role", "precision"), registry=registry
        )
        self.refused = Counter(
            "hetspec_store_refusals", "Calls and leases ended with an error.", ("code",), registry=registry
        )
        self.served_bytes = Counter(
            "hetspec_store_served_bytes", "Weights sent over the wire; units of this host map them.", registry=registry
        )
        self.read_seconds = Histogram(
            "hetspec_store_read_seconds", "Reading a chunk to be sent.", registry=registry, buckets=_READ_SECONDS
        )
        self.pack_seconds = Histogram(
            "hetspec_store_pack_seconds",
            "From a lease's request to its grant: most of it converts weights, where that has not been done.",
            registry=registry,
            buckets=_PACK_SECONDS,
        )
        self.checkpoint = Gauge(
            "hetspec_store_checkpoint_info",
            "1 for each checkpoint that is served.",
            ("role", "model", "fingerprint"),
            registry=registry,
        )

    def load(self) -> common_pb2.UnitLoad:
        """How busy the store is: making packs, and reading."""
        counted = Counters(self.registry, (_READS, _READING, _PACKING))
        return common_pb2.UnitLoad(
            uptime_seconds=time.monotonic() - self._since_s,
            busy_seconds=counted.total(_READING) + counted.total(_PACKING),
            tasks=int(counted.total(_READS)),
        )

    def counted_bytes(self) -> int:
        """Sent over the wire."""
        return int(Counters(self.registry, (_SERVED,)).total(_SERVED))
