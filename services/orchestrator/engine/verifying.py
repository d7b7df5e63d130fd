"""Second step of a round: the target's hidden rows. What a verifier lost is rebuilt from the session's tokens."""

from __future__ import annotations

from hetspec.decoding.tree import TokenTree
from hetspec.rpc.messages import HiddenRows, HiddenStates, VerifyItem
from orchestrator.engine.checks import check_hidden
from orchestrator.engine.model import ModelBounds
from orchestrator.engine.recovery import Recovery
from orchestrator.engine.session import Session
from orchestrator.units.errors import FAULTS
from orchestrator.units.replica import Replica
from orchestrator.units.replica_set import ReplicaSet

_NO_TREE = TokenTree()


class Verifying:
    def __init__(
        self, verifiers: ReplicaSet[VerifyItem, HiddenStates], bounds: ModelBounds, recovery: Recovery
    ) -> None:
        self._verifiers = verifiers
        self._bounds = bounds
        self._recovery = recovery

    def needs_prefill(self, session: Session) -> bool:
        """Whether more than one chunk of the session's tokens is unknown to its verifier."""
        return session.mark.length - session.verifier.known.length > self._bounds.prompt_chunk_tokens

    async def prefill(self, session: Session) -> None:
        """Feeds chunks until the last one is left, which goes with the tree."""
        while self.needs_prefill(session):
            try:
                await self._pass_chunk(session)
            except FAULTS as fault:
                await self._rebuild(session, fault)

    async def verify(self, session: Session, tree: TokenTree) -> bytes:
        """Hidden rows of the session's last token, then of the tree's nodes: float32 [1 + nodes, hidden_size]."""
        while True:
            await self.prefill(session)
            try:
                return await self._pass_tree(session, tree)
            except FAULTS as fault:
                await self._rebuild(session, fault)

    async def _pass_chunk(self, session: Session) -> None:
        seat = session.verifier
        replica = await self._seat(session)
        start = seat.known.length
        stop = start + self._bounds.prompt_chunk_tokens
        item = VerifyItem(seat.update(session.history[start:stop]), _NO_TREE, HiddenRows.NONE)
        served = await replica.submit(item, stop - start, is_prompt=True)
        session.account("verifier", served)
        check_hidden(served.value, 0, self._bounds.hidden_size)
        seat.advance(session.mark_at(stop))

    async def _pass_tree(self, session: Session, tree: TokenTree) -> bytes:
        seat = session.verifier
        replica = await self._seat(session)
        append = session.history[seat.known.length :]
        item = VerifyItem(seat.update(append), tree, HiddenRows.LAST)
        served = await replica.submit(item, len(append) + len(tree), is_prompt=len(append) > 1)
        session.account("verifier", served)
        check_hidden(served.value, 1 + len(tree), self._bounds.hidden_size)
        seat.advance(session.mark)
        session.statistics.verified += len(tree)
        return served.value.data

    async def _seat(self, session: Session) -> Replica[VerifyItem, HiddenStates]:
        """The session's verifier; another one, which knows nothing of it yet, where there is none."""
        seat = session.verifier
        if seat.replica is None:
            seat.take(await self._verifiers.pick(session.digests.verifier, avoid=seat.last))
        assert seat.replica is not None
        return seat.replica

    async def _rebuild(self, session: Session, fault: Exception) -> None:
        session.verifier.leave()
        await self._recovery.after(session, fault)
