"""Prometheus counters and histograms as numbers, for those who read them inside the process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry

from hetspec.telemetry.profile import MetricChange

_Key = tuple[str, tuple[tuple[str, str], ...]]  # a sample's name and labels


class Counters:
    """What a registry's counters and histograms stood at. names: samples that matter; None: all."""

    def __init__(self, registry: CollectorRegistry, names: Sequence[str] | None = None) -> None:
        read = registry if names is None else registry.restricted_registry(names)
        self._values = dict(_samples(read))

    def total(self, name: str) -> float:
        """Over all labels; 0 where nothing was counted yet."""
        return sum(value for (sample, _), value in self._values.items() if sample == name)

    def since(self, earlier: Counters) -> tuple[MetricChange, ...]:
        """The samples that grew."""
        grown = ((key, value - earlier._values.get(key, 0.0)) for key, value in self._values.items())
        return tuple(MetricChange(name, dict(labels), by) for (name, labels), by in grown if by)


def _samples(registry: Any) -> Iterator[tuple[_Key, float]]:
    for metric in registry.collect():
        if metric.type in ("counter", "histogram"):
            for sample in metric.samples:
                labels: Mapping[str, str] = sample.labels
                yield (sample.name, tuple(sorted(labels.items()))), sample.value
