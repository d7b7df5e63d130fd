"""Third step of a round: the sampler walks the tree. Stateless: any sampler of the session's digest will do."""

from __future__ import annotations

from hetspec.decoding.tree import TokenTree
from hetspec.rpc.messages import Walk, WalkItem
from orchestrator.engine.checks import check_walk
from orchestrator.engine.model import ModelBounds
from orchestrator.engine.recovery import Recovery
from orchestrator.engine.session import Session
from orchestrator.units.errors import FAULTS
from orchestrator.units.replica import Replica
from orchestrator.units.replica_set import ReplicaSet


class Choosing:
    def __init__(self, samplers: ReplicaSet[WalkItem, Walk], bounds: ModelBounds, recovery: Recovery) -> None:
        self._samplers = samplers
        self._bounds = bounds
        self._recovery = recovery

    async def choose(self, session: Session, tree: TokenTree, hidden: bytes) -> Walk:
        item = self._item(session, tree, hidden)
        failed: Replica[WalkItem, Walk] | None = None
        while True:
            replica = await self._samplers.pick(session.digests.sampler, avoid=failed)
            try:
                served = await replica.submit(item, rows=1 + len(tree))
                session.account("sampler", served)
                check_walk(served.value, item, self._bounds.vocab_size)
                return served.value
            except FAULTS as fault:
                failed = replica
                await self._recovery.after(session, fault)

    def _item(self, session: Session, tree: TokenTree, hidden: bytes) -> WalkItem:
        request = session.request
        return WalkItem(
            session=session.id,
            hidden=hidden,
            tree=tree,
            sampling=request.sampling,
            noise=request.noise,
            position=session.mark.length,
            max_tokens=session.left,
            end_ids=self._bounds.end_ids,
            top_logprobs=request.top_logprobs,
        )
