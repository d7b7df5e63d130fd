"""What rounds cost on this machine: as its units measured themselves at their start, and as rounds have shown since."""

from __future__ import annotations

from collections import deque
from statistics import median

from hetspec.drafting.costs import CostCurve, DraftCosts
from hetspec.rpc.messages import HiddenStates, VerifyItem
from hetspec.rpc.messages.draft_costs import curve_from_pb
from hetspec.v1 import common_pb2
from orchestrator.policies.costs import CostQuery, RoundTook
from orchestrator.units.replica_set import ReplicaSet

_ROUND_NS = 6_000_000  # of a round beyond its units' passes, before there was one
_RECENT = 32  # rounds that are remembered, of all sessions together


class HostCosts:
    """What the units measured is of passes that follow each other, at one length of the context. Rounds show how much
    longer passes take between messages, with caches that others have filled, and what a round costs beside them.
    Sessions that run at the same time share passes and the time between them: each is taken to bring as many rows as
    the others, and bears its part.

    Of energy nothing was measured: a machine is taken to draw as much at any time, so that time stands for it.
    """

    def __init__(self, verifiers: ReplicaSet[VerifyItem, HiddenStates]) -> None:
        self._verifiers = verifiers
        self._beside_ns = _Recent(_ROUND_NS)
        self._verify_ratio = _Recent(1.0)
        self._step_ratio = _Recent(1.0)

    def costs(self, query: CostQuery) -> DraftCosts | None:
        verify, step = self._verify_curve(), _told(query.drafter.step_ns)
        if step is None and not query.drafter.identity.model:  # lookup alone drafts
            step = CostCurve.padded([(query.step_rows, 0)])
        if verify is None or step is None:
            return None
        verify = _scaled(verify, self._verify_ratio.median)
        step = _scaled(_share(step, self._sessions), self._step_ratio.median)
        return DraftCosts(round(self._beside_ns.median), verify, step)

    def learn(self, took: RoundTook) -> None:
        """What drafts take beyond their steps, as passes show it, is taken to grow with them."""
        verify = self._verify_curve()
        if verify is None or took.nodes >= verify.max_rows:
            return
        self._verify_ratio.add(took.verifier_ns / verify(1 + took.nodes))
        if took.spent_ns:
            self._step_ratio.add(self._step_ratio.median * took.drafter_ns / took.spent_ns)
        self._beside_ns.add(took.beside_ns // self._sessions)

    def _verify_curve(self) -> CostCurve | None:
        """Of one session's share."""
        replicas = self._verifiers.replicas
        curve = _told(replicas[0].description.verify_ns) if replicas else None
        return None if curve is None else _share(curve, self._sessions)

    @property
    def _sessions(self) -> int:
        """That share a verifier's passes."""
        replicas = self._verifiers.replicas
        return max(1, round(sum(replica.load[0] for replica in replicas) / max(1, len(replicas))))


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
    """A session's part of a pass of all of them. Beyond what was measured, rows cost what the last of them did."""
    if sessions == 1:
        return curve
    (before, cost_before), (last, cost_last) = curve.points[-2:] if len(curve.points) > 1 else (curve.points[0],) * 2
    row = (cost_last - cost_before) / max(1, last - before)

    def cost(rows: int) -> float:
        return curve(rows) if rows <= last else cost_last + row * (rows - last)

    return CostCurve(tuple((rows, round(cost(sessions * rows) / sessions)) for rows, _ in curve.points))


def _scaled(curve: CostCurve, ratio: float) -> CostCurve:
    return CostCurve(tuple((rows, round(cost * ratio)) for rows, cost in curve.points))


def _told(curve: common_pb2.CostCurve) -> CostCurve | None:
    return curve_from_pb(curve) if curve.rows else None
