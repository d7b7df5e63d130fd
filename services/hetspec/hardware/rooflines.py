"""What a stretch of work asks of a device, and what that takes: arithmetic and memory at once, the longer one binds."""

from __future__ import annotations

from dataclasses import dataclass

from hetspec.hardware.cost import Component, Meter
from hetspec.hardware.ledger import Ledger
from hetspec.hardware.units import time_ns


@dataclass(frozen=True, slots=True)
class Demand:
    """Of one layer or head, for all its rows. runs: of its graph, the rows being more than the largest bucket.

    weight_ops, attention_ops: a multiply-add is two. memory_bytes: weights, once a run; keys and values.
    """

    runs: int
    weight_ops: int
    attention_ops: int
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class Roof:
    """A device's rates for one datatype."""

    weights: Meter
    attention: Meter
    memory: Meter
    launch: Meter
    launch_ns: int

    def compute_ns(self, demand: Demand) -> int:
        arithmetic = time_ns(demand.weight_ops, self.weights.per_second)
        return arithmetic + time_ns(demand.attention_ops, self.attention.per_second)

    def memory_ns(self, demand: Demand) -> int:
        return time_ns(demand.memory_bytes, self.memory.per_second)

    def busy_ns(self, demand: Demand) -> int:
        return max(self.compute_ns(demand), self.memory_ns(demand))

    def enter(self, ledger: Ledger, demand: Demand, times: int = 1) -> None:
        """The time, and all that is used, `times` over."""
        self.hold(ledger, demand, times)
        self.use(ledger, demand, times)

    def hold(self, ledger: Ledger, demand: Demand, times: int) -> None:
        """The time belongs to what binds."""
        compute, memory = self.compute_ns(demand), self.memory_ns(demand)
        bound = Component.COMPUTE if compute >= memory else Component.MEMORY
        ledger.hold(bound, max(compute, memory) * times)

    def use(self, ledger: Ledger, demand: Demand, times: int) -> None:
        ledger.use(self.weights, demand.weight_ops, times)
        ledger.use(self.attention, demand.attention_ops, times)
        ledger.use(self.memory, demand.memory_bytes, times)

    def launch_graphs(self, ledger: Ledger, graphs: int) -> None:
        ledger.hold(Component.LAUNCH, graphs * self.launch_ns)
        ledger.use(self.launch, graphs, alone_ns=graphs * self.launch_ns)


def bucket_runs(rows: int, buckets: list[int] | None) -> tuple[int, int]:
    """How often the graph runs, and rows with their padding: as often the largest as it is filled, then the least that
    holds the rest. Without buckets once, unpadded."""
    if not buckets:
        return 1, rows
    full, rest = divmod(rows, buckets[-1])
    padded = next((bucket for bucket in buckets if bucket >= rest), 0) if rest else 0
    return full + bool(rest), full * buckets[-1] + padded
