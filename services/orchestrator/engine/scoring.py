"""Before the first round of a request that wants logprobs of its prompt: they are taken chunk by chunk."""

from __future__ import annotations

from orchestrator.engine.choosing import Choosing
from orchestrator.engine.model import ModelBounds
from orchestrator.engine.session import Session
from orchestrator.engine.verifying import Verifying
from orchestrator.units.fleet import SCORED_ROWS


class Scoring:
    def __init__(self, verifying: Verifying, choosing: Choosing, bounds: ModelBounds) -> None:
        self._verifying = verifying
        self._choosing = choosing
        self._row_bytes = bounds.row_bytes

    async def score_prompt(self, session: Session) -> None:
        """Fills `session.prompt_logprobs`. The prompt's last token is left for the first round."""
        last = len(session.request.prompt_ids) - 1
        while len(session.prompt_logprobs) < last:
            start, hidden = await self._verifying.hidden_of_prompt(session, last)
            await self._score_chunk(session, start, hidden)

    async def _score_chunk(self, session: Session, start: int, hidden: bytes) -> None:
        """hidden: rows of the prompt's tokens from `start` on. What a rebuild brought once more is passed over."""
        stop = start + len(hidden) // self._row_bytes
        known = len(session.prompt_logprobs)
        assert start <= known, "a scored prompt is read from its first token, whatever others have read of it"
        for first in range(max(start, known), stop, SCORED_ROWS):
            end = min(first + SCORED_ROWS, stop)
            rows = hidden[(first - start) * self._row_bytes : (end - start) * self._row_bytes]
            tokens = session.request.prompt_ids[first + 1 : end + 1]
            session.prompt_logprobs += await self._choosing.score(session, tokens, rows)
            session.got_on()
