"""The synchronous round: draft, verify, walk, commit. Plain decoding is the same without a draft."""

from __future__ import annotations

from dataclasses import dataclass

from hetspec.rpc.messages import Draft, Walk
from orchestrator.engine.choosing import Choosing
from orchestrator.engine.drafting import Drafting
from orchestrator.engine.scoring import Scoring
from orchestrator.engine.session import Session
from orchestrator.engine.verifying import Verifying


@dataclass(frozen=True, slots=True)
class Steps:
    drafting: Drafting
    verifying: Verifying
    choosing: Choosing
    scoring: Scoring


async def run_round(session: Session, steps: Steps) -> Walk:
    """Decides at least one token more. Raises EngineError."""
    draft = await _draft_while_prefilling(session, steps)
    verified = await steps.verifying.verify(session, draft)
    walk = await steps.choosing.choose(session, verified.tree, verified.hidden)
    session.commit(walk, verified)
    return walk


async def _draft_while_prefilling(session: Session, steps: Steps) -> Draft:
    """A long prompt goes through target and draft at the same time."""
    if not steps.verifying.needs_prefill(session):
        return await steps.drafting.draft(session)
    draft = session.clock.spawn(steps.drafting.draft(session))
    try:
        await steps.verifying.prefill(session)
        return await session.clock.join(draft)
    finally:
        draft.cancel()
