"""The server's counters, from its Prometheus page."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from hetspec_client.errors import UnexpectedAnswer


@dataclass(frozen=True, slots=True)
class Metrics:
    samples: tuple[Sample, ...]

    @classmethod
    def parse(cls, page: bytes) -> Self:
        """Raises UnexpectedAnswer."""
        try:
            families = list(text_string_to_metric_families(page.decode()))
        except (ValueError, KeyError) as error:
            raise UnexpectedAnswer(f"the metrics page cannot be read: {error}") from error
        return cls(tuple(sample for family in families for sample in family.samples))

    def total(self, name: str, **labels: str) -> float:
        """The sum over all samples of this name that carry these labels; 0 where there is none."""
        return sum(sample.value for sample in self._named(name) if labels.items() <= sample.labels.items())

    def by(self, name: str, label: str) -> dict[str, float]:
        """The sums by one label's value."""
        sums: dict[str, float] = {}
        for sample in self._named(name):
            value = sample.labels.get(label, "")
            sums[value] = sums.get(value, 0.0) + sample.value
        return sums

    def _named(self, name: str) -> Iterable[Sample]:
        return (sample for sample in self.samples if sample.name == name)
