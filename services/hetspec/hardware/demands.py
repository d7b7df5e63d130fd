"""What work asks of a device, for models' layers and single matrices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hetspec.hardware.cost_as import PricedModel
from hetspec.hardware.rooflines import Demand, bucket_runs
from hetspec.hardware.work import ItemRows

Buckets = list[int] | None
DemandOf = Callable[[Buckets], Demand]
"""Of a device with these buckets."""


@dataclass(frozen=True, slots=True)
class Attended:
    """Of a pass: rows, the positions that all rows attend to, and those that its sessions hold between them."""

    rows: int
    positions: int
    held: int

    @classmethod
    def of(cls, items: Sequence[ItemRows]) -> Attended:
        lengths = [item.kv_len for item in items if item.kv_len]
        return cls(sum(map(len, lengths)), sum(map(sum, lengths)), sum(map(max, lengths)))

    def by(self, rows: int) -> int:
        """Positions that so many of its rows attend to, as the others do on average."""
        return self.positions * rows // self.rows


def layer(model: PricedModel, rows: int, attended: Attended) -> DemandOf:
    """Padding rows attend as the others do; what they attend to is written for them, too."""

    def demand(buckets: Buckets) -> Demand:
        runs, padded = bucket_runs(rows, buckets)
        return Demand(
            runs,
            2 * model.shape.layer_weights * padded,
            4 * model.shape.heads * model.shape.head_dim * attended.by(padded),
            runs * model.layer_bytes + (attended.held + padded) * model.kv_row_bytes,
        )

    return demand


def matrix(model: PricedModel, weights: int, rows: int) -> DemandOf:
    def demand(buckets: Buckets) -> Demand:
        runs, padded = bucket_runs(rows, buckets)
        return Demand(runs, 2 * weights * padded, 0, runs * model.datatype.bytes_of(weights))

    return demand
