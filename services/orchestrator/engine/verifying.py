"""Second step of a round: the target's hidden rows. What a verifier lost is rebuilt from the session's tokens."""

from __future__ import annotations

from hetspec.decoding.tree import TokenTree
from hetspec.rpc.messages import Draft, EarlyExit, HiddenRows, HiddenStates, VerifyItem
from hetspec.telemetry.tracing import span
from orchestrator.engine.checks import check_hidden
from orchestrator.engine.model import ModelBounds
from orchestrator.engine.recovery import Recovery
from orchestrator.engine.session import Session
from orchestrator.engine.verified import Verified
from orchestrator.policies.batching import prompt_chunk_tokens
from orchestrator.policies.early_exit import Exit
from orchestrator.policies.mode import Part
from orchestrator.timeline.task import Kind
from orchestrator.units.errors import FAULTS
from orchestrator.units.replica import Replica
from orchestrator.units.replica_set import ReplicaSet

_NO_TREE = TokenTree()
_WORTH_A_LOOK = 16  # nodes: to look at those of a smaller tree takes longer than the ones that go would have


class Verifying:
    def __init__(
        self, verifiers: ReplicaSet[VerifyItem, HiddenStates], bounds: ModelBounds, recovery: Recovery
    ) -> None:
        self._verifiers = verifiers
        self._bounds = bounds
        self._recovery = recovery

    def needs_prefill(self, session: Session) -> bool:
        """Whether more than one chunk of the session's tokens is unknown to its verifier."""
        return session.mark.length - session.verifier.known.length > self._chunk_tokens(session)

    async def prefill(self, session: Session) -> None:
        """Feeds chunks until the last one is left, which goes with the tree."""
        while self.needs_prefill(session):
            try:
                await self._seat(session)
                if self.needs_prefill(session):  # less is left where others have read the same before
                    with span("prefill"):
                        await self._pass_chunk(session, session.mark.length, _rows_of(session, HiddenRows.NONE))
            except FAULTS as fault:
                await self._rebuild(session, fault)

    async def hidden_of_prompt(self, session: Session, stop: int) -> tuple[int, bytes]:
        """Feeds the next chunk of the tokens before `stop`: where it begins, and the hidden rows of all its tokens.

        Chunks begin at the first token again when a verifier was lost.
        """
        while True:
            try:
                with span("prefill"):
                    return await self._pass_chunk(session, stop, HiddenRows.ALL)
            except FAULTS as fault:
                await self._rebuild(session, fault)

    async def verify(self, session: Session, draft: Draft) -> Verified:
        while True:
            await self.prefill(session)
            try:
                with span("verify", nodes=len(draft.tree)):
                    return await self._pass_tree(session, draft)
            except FAULTS as fault:
                await self._rebuild(session, fault)

    async def _pass_chunk(self, session: Session, end: int, hidden: HiddenRows) -> tuple[int, bytes]:
        seat = session.verifier
        replica = await self._seat(session)
        start = seat.known.length
        stop = min(start + self._chunk_tokens(session), end)
        item = VerifyItem(seat.update(session.history[start:stop]), _NO_TREE, hidden)
        with session.timeline.task(Kind.REBUILD if seat.epoch > 1 else Kind.PREFILL, f"{stop - start} rows"):
            served = await replica.submit(item, stop - start, is_prompt=True, alone=session.is_suspect)
        session.account("verifier", served)
        check_hidden(served.value, item, self._bounds.row_bytes)
        seat.advance(session.mark_at(stop))
        if session.features is not None:
            session.features.add(start, served.value.data)
        return start, served.value.data

    def _chunk_tokens(self, session: Session) -> int:
        replica = session.verifier.replica
        return prompt_chunk_tokens(self._bounds.prompt_chunk_tokens, replica.load[0] if replica else 1)

    async def _pass_tree(self, session: Session, draft: Draft) -> Verified:
        seat, tree = session.verifier, draft.tree
        replica = await self._seat(session)
        start = seat.known.length
        append = session.history[start:]
        hidden = _rows_of(session, HiddenRows.LAST)
        item = VerifyItem(seat.update(append, len(tree)), tree, hidden, _early_exit(session, replica, draft))
        rows = len(append) + len(tree)
        with session.timeline.task(Kind.VERIFY, f"{rows} rows") as task:
            served = await replica.submit(item, rows, is_prompt=len(append) > 1, alone=session.is_suspect)
        session.account("verifier", served)
        check_hidden(served.value, item, self._bounds.row_bytes)
        seat.advance(session.mark)
        session.timeline.judge(task)
        session.statistics.verified += len(tree)
        session.statistics.pruned += len(served.value.pruned)
        if session.lever is not None:
            session.lever.verified(len(served.value.pruned))
        data, row_bytes = served.value.data, self._bounds.row_bytes
        if session.features is not None:
            session.features.add(start, data[: len(append) * row_bytes])
        root = served.value.rows - 1 - (len(tree) - len(served.value.pruned))
        return Verified.of(tree, data[root * row_bytes :], served.value.pruned)

    async def _seat(self, session: Session) -> Replica[VerifyItem, HiddenStates]:
        """The session's verifier; another one, which knows no more of it than its prefix cache, where there is none."""
        seat = session.verifier
        if seat.replica is None:
            seat.take(await self._verifiers.pick(session.digests.verifier, avoid=seat.last, ids=session.shared_ids))
            # The row of the last shared token joins those that come to those that the drafter may share.
            await session.begin(seat, read_again=0 if session.features is None else 1)
            if session.statistics.rounds == 0:
                session.statistics.cached_tokens = seat.known.length
        assert seat.replica is not None
        return seat.replica

    async def _rebuild(self, session: Session, fault: Exception) -> None:
        replica = session.verifier.replica
        if session.verifier.gives_up_shared(fault):
            session.verifier.leave()
            return
        session.verifier.leave()
        session.statistics.rebuilds += 1
        if replica is not None:
            replica.blame(fault)
        await self._recovery.after(session, fault)


def _early_exit(session: Session, replica: Replica[VerifyItem, HiddenStates], draft: Draft) -> EarlyExit | None:
    """None: every node goes through all layers."""
    told = replica.description
    if Part.EARLY_EXIT not in session.request.parts or not told.exit_layer or len(draft.tree) < _WORTH_A_LOOK:
        return None
    at = Exit(1 - told.exit_layer / told.layers, told.exit_recall)
    if session.lever is not None and not session.lever.may_leave(at):
        return None
    request = session.request
    return EarlyExit(draft.probabilities, draft.sources, request.sampling.temperature, request.noise)


def _rows_of(session: Session, enough: HiddenRows) -> HiddenRows:
    return enough if session.features is None else HiddenRows.ALL
