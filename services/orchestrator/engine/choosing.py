"""Third step of a round: the sampler walks the tree. Stateless: any sampler of the session's digest will do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from hetspec.decoding.tree import TokenTree
from hetspec.rpc.messages import TokenLogprobs, Walk, WalkItem
from hetspec.telemetry.tracing import span
from orchestrator.clock.world import NotPriced
from orchestrator.engine import conditions
from orchestrator.engine.checks import check_scored, check_walk
from orchestrator.engine.model import ModelBounds
from orchestrator.engine.recovery import Recovery
from orchestrator.engine.session import Session
from orchestrator.policies.mode import Part
from orchestrator.timeline.task import Kind
from orchestrator.units.errors import FAULTS
from orchestrator.units.replica import Replica
from orchestrator.units.replica_set import ReplicaSet


class Choosing:
    def __init__(self, samplers: ReplicaSet[WalkItem, Walk], bounds: ModelBounds, recovery: Recovery) -> None:
        self._samplers = samplers
        self._bounds = bounds
        self._recovery = recovery

    async def choose(self, session: Session, tree: TokenTree, hidden: bytes) -> Walk:
        item = replace(self.walk_item(session, tree), hidden=hidden)
        return await self._ask(session, item, 1 + len(tree), partial(check_walk, vocab_size=self._bounds.vocab_size))

    async def choose_once(self, samplers: ReplicaSet[WalkItem, Walk], session: Session, item: WalkItem) -> Walk | None:
        """By whichever of these samplers is there now; None where there is none, or it fails."""
        replica = samplers.try_pick(session.digests.sampler)
        if replica is None:
            return None
        try:
            with span("walk"), session.timeline.task(Kind.WALK, f"{1 + len(item.tree)} rows"):
                served = await replica.submit(item, 1 + len(item.tree))
                session.account("sampler", served)
                check_walk(served.value, item, self._bounds.vocab_size)
            return served.value
        except NotPriced:
            return None
        except FAULTS as fault:
            replica.blame(fault)
            return None

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
                kind = Kind.SCORE if is_prompt else Kind.WALK
                with span("walk"), session.timeline.task(kind, f"{rows} rows"):
                    served = await replica.submit(item, rows, is_prompt, alone=session.is_suspect)
                    session.account("sampler", served)
                    check(served.value, item)
                return served.value
            except FAULTS as fault:
                failed = replica
                replica.blame(fault)
                await self._recovery.after(session, fault)

    def end_ids(self, session: Session) -> tuple[int, ...]:
        """Tokens that end the session's output."""
        return conditions.end_ids(session.request, self._bounds)

    def walk_item(self, session: Session, tree: TokenTree, foreseen: tuple[int, ...] = ()) -> WalkItem:
        """But for its hidden rows. foreseen: tokens between the session's and the tree."""
        request = session.request
        return WalkItem(
            session=session.id,
            hidden=b"",
            tree=tree,
            sampling=request.sampling,
            noise=request.noise,
            position=session.mark.length + len(foreseen),
            max_tokens=session.left - len(foreseen),
            end_ids=self.end_ids(session),
            top_logprobs=request.top_logprobs,
            constraint=conditions.constraint(request, self._bounds),
            past=conditions.past(session, foreseen),
            eager=Part.LAZY_HEAD in request.disabled,
        )
