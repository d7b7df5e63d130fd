"""Where a role's products are computed: on its device, or on two that split every operator between them."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

from hetspec.hardware.demands import Buckets, DemandOf
from hetspec.hardware.ledger import Ledger
from hetspec.hardware.rooflines import Demand, Roof


class Execution(Protocol):
    @property
    def roof(self) -> Roof:
        """Of the device that launches graphs."""

    @property
    def buckets(self) -> Buckets: ...

    def enter(self, ledger: Ledger, demand_of: DemandOf, times: int = 1) -> None:
        """The time that it takes, and what is used, `times` over."""


@dataclass(frozen=True, slots=True)
class Alone:
    roof: Roof
    buckets: Buckets

    def enter(self, ledger: Ledger, demand_of: DemandOf, times: int = 1) -> None:
        self.roof.enter(ledger, demand_of(self.buckets), times)


@dataclass(frozen=True, slots=True)
class Split:
    """helper: the other device. most: of a matrix, what its memory holds."""

    roof: Roof
    buckets: Buckets
    helper: Roof
    helper_buckets: Buckets
    most: Fraction

    def enter(self, ledger: Ledger, demand_of: DemandOf, times: int = 1) -> None:
        """Both begin together, and the longer one holds up the other."""
        own, other = demand_of(self.buckets), demand_of(self.helper_buckets)
        own_ns, other_ns = self.roof.busy_ns(own), self.helper.busy_ns(other)
        share = min(self.most, Fraction(own_ns, own_ns + other_ns))
        sides = [(self.roof, _scaled(own, 1 - share)), (self.helper, _scaled(other, share))]
        roof, demand = max(sides, key=lambda side: side[0].busy_ns(side[1]))
        roof.hold(ledger, demand, times)
        for roof, demand in sides:
            roof.use(ledger, demand, times)


def _scaled(demand: Demand, share: Fraction) -> Demand:
    amounts = demand.weight_ops, demand.attention_ops, demand.memory_bytes
    return Demand(demand.runs, *(round(amount * share) for amount in amounts))
