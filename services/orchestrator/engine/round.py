"""The synchronous round: draft, verify, walk, commit. Plain decoding is the same without a draft."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from hetspec.rpc.messages import Walk
from orchestrator.engine.choosing import Choosing
from orchestrator.engine.drafting import Drafted, Drafting
from orchestrator.engine.pre_verifying import PreVerifying
from orchestrator.engine.scoring import Scoring
from orchestrator.engine.session import Session
from orchestrator.engine.verifying import Verifying


@dataclass(frozen=True, slots=True)
class Steps:
    drafting: Drafting
    verifying: Verifying
    choosing: Choosing
    scoring: Scoring
    pre_verifying: PreVerifying | None = None


class Decoding(Protocol):
    """A session's rounds, one after the other."""

    async def next(self) -> Walk:
        """Decides at least one token more. Raises EngineError."""

    async def close(self) -> None:
        """Ends what still runs beside the rounds."""

    def abort(self) -> None:
        """As `close`, without waiting."""


class Rounds:
    """Nothing runs beside them."""

    def __init__(self, session: Session, steps: Steps) -> None:
        self._session = session
        self._steps = steps

    async def next(self) -> Walk:
        return await run_round(self._session, self._steps)

    async def close(self) -> None: ...

    def abort(self) -> None: ...


async def run_round(session: Session, steps: Steps) -> Walk:
    """Decides at least one token more. Raises EngineError."""
    drafted = await _draft_while_prefilling(session, steps)
    session.begin_round(drafted.draft, drafted.policy)
    session.timeline.propose(drafted.task)
    verified = await steps.verifying.verify(session, drafted.draft)
    walk = await steps.choosing.choose(session, verified.tree, verified.hidden)
    session.commit(walk, verified, (session.verifier, session.drafter))
    session.chain_length.round_ended(drafted.policy, len(drafted.draft.tree), len(walk.accepted))
    return walk


async def _draft_while_prefilling(session: Session, steps: Steps) -> Drafted:
    """A long prompt goes through target and draft at the same time."""
    if not steps.verifying.needs_prefill(session):
        return await steps.drafting.draft(session)
    draft = session.clock.spawn(steps.drafting.draft(session))
    try:
        await steps.verifying.prefill(session)
        return await session.clock.join(draft)
    finally:
        draft.cancel()
