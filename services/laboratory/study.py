"""Answers of a record, decoded by every policy on every hardware."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from hetspec.hardware.cost_as import CostAs
from hetspec.hardware.profile import Described
from laboratory.drafts import StudiedDraft
from laboratory.outcome import Outcome, together
from laboratory.policy import Change, Policy
from laboratory.record import Record
from laboratory.rig import Rig, hardware_of
from laboratory.works import Done, repriced

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Pair:
    """Hardware, and what the models are priced as there."""

    hardware: Described
    cost_as: CostAs

    @property
    def name(self) -> str:
        return f"{self.hardware.name}, {self.cost_as.name}"


Run = tuple[Pair, Policy]


@dataclass(frozen=True, slots=True)
class Studied:
    """outcomes: of each answer of the record, in order."""

    pair: Pair
    policy: Policy
    outcomes: tuple[Outcome, ...]

    def total(self, categories: Sequence[str], category: str | None = None) -> Outcome:
        """Of all answers, or of those of a category."""
        wanted = zip(self.outcomes, categories, strict=True)
        return together(one for one, of in wanted if category is None or of == category)


class Study:
    """Answer by answer, so that what was drafted for one is kept no longer than all policies have asked for it. What is
    drafted without a look at costs is drafted once, and priced for every pair."""

    def __init__(self, record: Record, draft: StudiedDraft, runs: Sequence[Run]) -> None:
        self._record = record
        self._draft = draft
        self._runs = runs
        self._hardware = self._on_each(partial(hardware_of, draft.shapes))
        self._rigs: dict[tuple[str, Change], Rig] = {}
        self._runner = asyncio.Runner()

    def answer(self, place: int, runs: Sequence[Run] | None = None) -> list[Outcome]:
        """Of the record's answer at this place, by these of its runs, or all. Raises StudyError."""
        self._draft.proposals.turn_to(place)
        return self._runner.run(self._answer(place, self._runs if runs is None else runs))

    def close(self) -> None:
        self._runner.close()
        self._draft.close()

    async def _answer(self, place: int, runs: Sequence[Run]) -> list[Outcome]:
        self._rigs = self._rigs or self._on_each(partial(Rig, self._record, self._draft.model, self._draft.shapes))
        done: dict[Hashable, Done] = {}
        outcomes = []
        for pair, policy in runs:
            known = _alike(policy, pair, done)
            if known is None:
                known = await self._rigs[pair.name, policy.hardware].answer(place, policy)
                if policy.is_lazy and known.is_sequential:
                    done[policy.rounds(pair.name)] = known
                outcomes.append(known.outcome)
            else:
                outcomes.append(repriced(known, self._hardware[pair.name, policy.hardware], policy.is_lazy))
        return outcomes

    def _on_each(self, make: Callable[[Described, CostAs], T]) -> dict[tuple[str, Change], T]:
        """Of every pair, and of its hardware as policies change it."""
        wanted = {(pair.name, policy.hardware): pair for pair, policy in self._runs}
        return {(name, change): make(change(pair.hardware), pair.cost_as) for (name, change), pair in wanted.items()}


def _alike(policy: Policy, pair: Pair, done: Mapping[Hashable, Done]) -> Done | None:
    """An answer of the same rounds."""
    if (known := done.get(policy.rounds(pair.name))) is not None:
        return known
    resting = policy.without_rest()
    known = done.get(resting.rounds(pair.name)) if resting else None
    return known if known is not None and not known.outcome.rested else None
