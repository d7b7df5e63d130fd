"""Registries of Prometheus metrics: one a service, since several may run in one process."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, ProcessCollector, disable_created_metrics


def new_registry() -> CollectorRegistry:
    """Holds the process's own metrics (processor time, memory, open files) already."""
    disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series for each counter, of no use to anybody here
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    return registry
