"""What rounds cost on this machine: as its units measured themselves when they started."""

from __future__ import annotations

from hetspec.drafting.costs import CostCurve, DraftCosts
from hetspec.rpc.messages import HiddenStates, VerifyItem
from hetspec.rpc.messages.draft_costs import curve_from_pb
from hetspec.v1 import common_pb2
from orchestrator.policies.costs import CostQuery
from orchestrator.units.replica_set import ReplicaSet

_ROUND_NS = 3_000_000  # of a round beyond its units' passes: messages, queues, bookkeeping


class HostCosts:
    """Of energy nothing was measured: a machine is taken to draw as much at any time, so that time stands for it."""

    def __init__(self, verifiers: ReplicaSet[VerifyItem, HiddenStates]) -> None:
        self._verifiers = verifiers

    def costs(self, query: CostQuery) -> DraftCosts | None:
        verifier = self._verifiers.description
        verify, step = _told(verifier.verify_ns) if verifier else None, _told(query.drafter.step_ns)
        if step is None and not query.drafter.identity.model:  # lookup alone drafts
            step = CostCurve.padded([(query.step_rows, 0)])
        return None if verify is None or step is None else DraftCosts(_ROUND_NS, verify, step)


def _told(curve: common_pb2.CostCurve) -> CostCurve | None:
    return curve_from_pb(curve) if curve.rows else None
