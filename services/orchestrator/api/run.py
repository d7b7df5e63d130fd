"""An admitted request: its choices' emissions, counted as they pass."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager

import anyio

from orchestrator.api.account import Account
from orchestrator.api.answers import Usage
from orchestrator.api.choices import SideBySide
from orchestrator.api.metrics import ChoiceObservation, Observation
from orchestrator.api.prepare import Prepared
from orchestrator.engine.engine import Generation, PumpedGeneration
from orchestrator.engine.errors import RequestFailed
from orchestrator.engine.request import Emission, Statistics

_RELEASE_S = 10.0  # for the units to free what a request held


class Choice:
    """A generation as it goes on."""

    def __init__(self, generation: Generation | PumpedGeneration, observation: ChoiceObservation) -> None:
        self._generation = generation
        self._observation = observation
        self.tokens = 0
        self.finish_reason: str | None = None

    @property
    def statistics(self) -> Statistics:
        return self._generation.statistics

    async def next(self) -> Emission:
        start = time.perf_counter()
        try:
            emission = await anext(self._generation)
        except StopAsyncIteration:
            raise RequestFailed("the generation ended without a reason") from None
        self._observation.emission(emission, time.perf_counter() - start)
        self.tokens += len(emission.tokens)
        self.finish_reason = emission.finish_reason
        return emission

    async def aclose(self) -> None:
        await self._generation.aclose()
        self._observation.count()


class Run:
    """An async iterator of (index of the choice, emission)."""

    def __init__(
        self,
        generations: Sequence[Generation | PumpedGeneration],
        observation: Observation,
        prepared: Prepared,
        account: Account | None,
        until_closed: Callable[[], AbstractAsyncContextManager[None]],
    ) -> None:
        """until_closed: raises what a client is told whose request the server can no longer serve."""
        self._observation = observation
        self._until_closed = until_closed
        self._prompt_tokens = prepared.prompt_tokens
        self._choices_a_prompt = prepared.choices_a_prompt
        self._account = account
        self._choices = [Choice(each, observation.choice(each.statistics)) for each in generations]
        self._emissions = SideBySide(self._choices)
        self._charge(self._prompt_tokens)

    def __aiter__(self) -> AsyncIterator[tuple[int, Emission]]:
        return self

    async def __anext__(self) -> tuple[int, Emission]:
        async with self._until_closed():
            choice, emission = await anext(self._emissions)
        self._charge(len(emission.tokens))
        return choice, emission

    @property
    def has_ended(self) -> bool:
        return all(choice.finish_reason is not None for choice in self._choices)

    @property
    def outcome(self) -> str:
        """How it ended, in a word: "length" where it cut any choice short."""
        reasons = {choice.finish_reason for choice in self._choices}
        return "length" if "length" in reasons else "stop"

    @property
    def usage(self) -> Usage:
        return Usage(self._prompt_tokens, sum(choice.tokens for choice in self._choices), self._cached_tokens)

    @property
    def statistics(self) -> list[Statistics]:
        return [choice.statistics for choice in self._choices]

    async def end(self, outcome: str) -> None:
        """Returns when the units have freed what the request held, even where the caller is being cancelled."""
        with anyio.move_on_after(_RELEASE_S, shield=True):
            await self._emissions.aclose()
        self._observation.end(outcome)

    @property
    def _cached_tokens(self) -> int:
        """Usage counts a prompt once, and its choices share it: the one that took over the least has read the rest."""
        taken, of_prompt = [choice.statistics.cached_tokens for choice in self._choices], self._choices_a_prompt
        return sum(min(taken[first : first + of_prompt]) for first in range(0, len(taken), of_prompt))

    def _charge(self, tokens: int) -> None:
        if self._account is not None:
            self._account.spend(tokens)
