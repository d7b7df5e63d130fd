"""A session whose output is known, and checks of its drafts by a drafter that holds the target."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from orchestrator.clock.clock import HostClock
from orchestrator.engine.choosing import Choosing
from orchestrator.engine.engine import Engine
from orchestrator.engine.pre_verifying import PreVerifying
from orchestrator.engine.request import GenerationRequest
from orchestrator.engine.seat import mark_at
from orchestrator.engine.session import Digests, Session


class DraftChecks:
    """Of a request that plain decoding answers with `output`. The test decides when plain decoding gets on."""

    def __init__(self, engine: Engine, request: GenerationRequest, output: Sequence[int]) -> None:
        self.output = list(output)
        self._fleet, bounds, told = engine._fleet, engine._bounds(), engine.description
        self.pre_verifying = PreVerifying(
            self._fleet.pre_verifiers,
            self._fleet.pre_samplers,
            Choosing(self._fleet.samplers, bounds, engine._recovery),
            bounds,
        )
        self._vocab_size = told.vocab_size
        digests = Digests(told.digests["verifier"], told.digests["sampler"])
        self.session = Session("checked", request, digests, HostClock())
        self.sit_down()

    def sit_down(self) -> None:
        """At the drafter that is there now."""
        seat, replica = self.session.drafter, self._fleet.drafters.try_pick()
        if replica is not None and seat.replica is not replica:
            seat.leave()
            seat.take(replica)

    @property
    def coming(self) -> list[int]:
        """What is not decided yet."""
        return self.output[len(self.session.history) - len(self.session.request.prompt_ids) :]

    def decide(self, tokens: int) -> None:
        """Plain decoding gets on."""
        history = self.session.history
        history.extend(self.coming[:tokens])
        self.session.mark = mark_at(history, len(history))

    def drafted(self, right: int, wrong: int = 2) -> list[int]:
        """So many tokens that come next, then others."""
        coming = self.coming
        other = (coming[right] + 1) % self._vocab_size if right < len(coming) else 0
        return [*coming[:right], *([other] * wrong)]

    def confirmed(self, tokens: Sequence[int]) -> int:
        """By plain decoding."""
        coming = self.coming
        return next((i for i, token in enumerate(tokens) if coming[i : i + 1] != [token]), len(tokens))

    async def check(self, tokens: Sequence[int]) -> int:
        async with asyncio.timeout(20):
            return await self.pre_verifying.check(self.session, tokens)
