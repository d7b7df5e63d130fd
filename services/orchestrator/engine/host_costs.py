"""What rounds cost on this machine: as its units measured themselves at their start, and as they have shown since."""

from __future__ import annotations

from collections import deque
from itertools import chain, islice
from statistics import fmean, median
from typing import NamedTuple

from hetspec.drafting.costs import CostCurve, DraftCosts
from hetspec.rpc.messages import HiddenStates, VerifyItem
from hetspec.rpc.messages.draft_costs import curve_from_pb
from hetspec.v1 import common_pb2, drafter_pb2, verifier_pb2
from orchestrator.policies.costs import CostQuery, RoundTook
from orchestrator.policies.seen_passes import corrected
from orchestrator.policies.thrift import EnergyCosts
from orchestrator.units.replica_set import ReplicaSet

_ROUND_NS = 6_000_000  # of a round beyond its passes and drafts, before there was one
_RECENT = 32  # rounds that are remembered, of all sessions together
_FRESH = 8  # rounds for which what they were told is good; anew after each of the first ones
_SHARED = 8  # passes, the latest, that tell how many sessions share one


class HostCosts:
    """Passes are told by the verifiers' own curve, corrected by those that they have run (`seen_passes`), whatever the
    mode; draft steps by the drafter's, as much longer as drafts were; the rest of a round by rounds.

    Sessions that run at the same time share passes, steps and what is beside them: each is taken to bring as many rows
    as the others, and bears its part.

    Of energy nothing was measured: a machine is taken to draw as much at any time, so that time stands for it.
    """

    def __init__(self, verifiers: ReplicaSet[VerifyItem, HiddenStates]) -> None:
        self._verifiers = verifiers
        self._beside_ns = _Recent(_ROUND_NS)
        self._step_ratio = _Recent(1.0)
        self._rounds = 0
        self._last: _Known | None = None

    def costs(self, query: CostQuery) -> DraftCosts | None:
        if not (replicas := self._verifiers.replicas):
            return None
        place = _Place(replicas[0].description, query.drafter, self._shared())
        if self._last is None or self._last.place != place:
            self._last = _Known(place, self._costs_at(place, query.step_rows))
        return self._last.costs

    def energy(self, query: CostQuery) -> EnergyCosts | None:
        """A check takes what a pass does."""
        costs = self.costs(query)
        return None if costs is None else EnergyCosts(costs, 0.0, costs.verify)

    def _costs_at(self, place: _Place, step_rows: int) -> DraftCosts | None:
        verify, step = self._verify_curve(place.verifier), _told(place.drafter.step_ns)
        if step is None and not place.drafter.identity.model:  # lookup alone drafts
            step = CostCurve.padded([(step_rows, 0)])
        if verify is None or step is None:
            return None
        step = _scaled(_share(step, place.shared), self._step_ratio.median)
        return DraftCosts(round(self._beside_ns.median), _share(verify, place.shared), step)

    def learn(self, took: RoundTook) -> None:
        """What drafts take beyond their steps is taken to grow with them."""
        if took.spent_ns:
            self._step_ratio.add(self._step_ratio.median * took.drafter_ns / took.spent_ns)
        self._beside_ns.add(took.sampler_ns + took.beside_ns / self._sessions)
        self._rounds += 1
        if self._rounds % _FRESH == 0 or self._rounds < _FRESH:
            self._last = None

    def _verify_curve(self, verifier: verifier_pb2.VerifierDescription) -> CostCurve | None:
        curve = _told(verifier.verify_ns)
        passes = chain.from_iterable(one.passes for one in self._verifiers.replicas)
        return None if curve is None else corrected(curve, passes)

    def _shared(self) -> int:
        """Sessions to a pass, about: costs are told anew where that changes."""
        latest = [islice(reversed(one.passes), _SHARED) for one in self._verifiers.replicas]
        items = [seen.items for seen in chain.from_iterable(latest)]
        return max(1, round(min(fmean(items) if items else self._sessions, self._sessions)))

    @property
    def _sessions(self) -> float:
        """Of one verifier."""
        replicas = self._verifiers.replicas
        return max(1.0, sum(one.load[0] for one in replicas) / max(1, len(replicas)))


class _Place(NamedTuple):
    """What costs are told of. shared: sessions to a pass."""

    verifier: verifier_pb2.VerifierDescription
    drafter: drafter_pb2.DrafterDescription
    shared: int


class _Known(NamedTuple):
    place: _Place
    costs: DraftCosts | None


class _Recent:
    """The median of what was seen lately: a round that something held up does not move it."""

    def __init__(self, before: float) -> None:
        """before: as long as nothing was seen."""
        self.median = before
        self._seen: deque[float] = deque(maxlen=_RECENT)

    def add(self, value: float) -> None:
        self._seen.append(value)
        self.median = median(self._seen)


def _share(curve: CostCurve, sessions: int) -> CostCurve:
    """A session's part of a pass of so many."""
    if sessions == 1:
        return curve
    whole = curve.longer(sessions * curve.max_rows)
    return CostCurve(tuple((rows, round(whole(sessions * rows) / sessions)) for rows, _ in curve.points))


def _scaled(curve: CostCurve, ratio: float) -> CostCurve:
    return CostCurve(tuple((rows, round(cost * ratio)) for rows, cost in curve.points))


def _told(curve: common_pb2.CostCurve) -> CostCurve | None:
    return curve_from_pb(curve) if curve.rows else None
