"""Third step of a round: the sampler walks the tree. Stateless: any sampler of the session's digest will do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from hetspec.decoding.tree import TokenTree
from hetspec.rpc.messages import TokenLogprobs, Walk, WalkItem
from hetspec.telemetry.tracing import span
from orchestrator.engine import conditions
from orchestrator.engine.checks import check_scored, check_walk
from orchestrator.engine.model import ModelBounds
from orchestrator.engine.recovery import Recovery
from orchestrator.engine.session import Session
from orchestrator.policies.mode import Part
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
        return await self._ask(session, item, 1 + len(tree), partial(check_walk, vocab_size=self._bounds.vocab_size))

    async def score(self, session: Session, tokens: Sequence[int], hidden: bytes) -> tuple[TokenLogprobs, ...]:
        """Logprobs of given tokens, each by its row of `hidden`."""
        request = session.request
        item = WalkItem(
            session=session.id,
            hidden=hidden,
            tree=TokenTree(),
            sampling=request.sampling,
            noise=request.noise,
            position=0,
            max_tokens=1,
            top_logprobs=request.top_logprobs,
            scored=tuple(tokens),
        )
        walk = await self._ask(session, item, len(tokens), check_scored, is_prompt=True)
        return walk.logprobs

    async def _ask(
        self,
        session: Session,
        item: WalkItem,
        rows: int,
        check: Callable[[Walk, WalkItem], None],
        is_prompt: bool = False,
    ) -> Walk:
        failed: Replica[WalkItem, Walk] | None = None
        while True:
            replica = await self._samplers.pick(session.digests.sampler, avoid=failed)
            try:
                with span("walk"):
                    served = await replica.submit(item, rows, is_prompt, alone=session.is_suspect)
                    session.account("sampler", served)
                    check(served.value, item)
                return served.value
            except FAULTS as fault:
                failed = replica
                replica.blame(fault)
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
            end_ids=conditions.end_ids(request, self._bounds),
            top_logprobs=request.top_logprobs,
            constraint=conditions.constraint(request, self._bounds),
            past=conditions.past(session),
            eager=Part.LAZY_HEAD in request.disabled,
        )
