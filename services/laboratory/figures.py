"""Policies beside each other on one pair of hardware and models."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from laboratory.outcome import Outcome
from laboratory.study import Studied
from laboratory.tables import as_csv


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one pair. outcomes: of all answers together, by policy."""

    pair: str
    outcomes: Mapping[str, Outcome]

    @classmethod
    def of(cls, studied: Sequence[Studied], categories: Sequence[str], category: str | None = None) -> list[Figures]:
        """Pair by pair. category: of prompts; None: all."""
        pairs = dict.fromkeys(one.pair.name for one in studied)
        return [
            cls(pair, {one.policy.name: one.total(categories, category) for one in studied if one.pair.name == pair})
            for pair in pairs
        ]

    def speed(self, policy: str, over: str) -> float:
        """How many times faster a token comes, once the first is there; 0 where no other does."""
        own_ns = self.outcomes[policy].decode_ns
        return self.outcomes[over].decode_ns / own_ns if own_ns else 0.0

    def speed_with_prompt(self, policy: str, over: str) -> float:
        """Of whole answers, the reading of the prompt included."""
        return self.outcomes[over].total_ns / self.outcomes[policy].total_ns

    def fastest(self, policies: Sequence[str]) -> str:
        return min(policies, key=lambda policy: self.outcomes[policy].decode_ns)


@dataclass(frozen=True, slots=True)
class StudyReport:
    """studied: of answers of these categories."""

    studied: Sequence[Studied]
    categories: Sequence[str]

    @property
    def all(self) -> list[Figures]:
        """Of all answers, pair by pair."""
        return Figures.of(self.studied, self.categories)


def csv_by_policy(
    every: Sequence[Figures], columns: Sequence[str], cells: Callable[[Figures, str, Outcome], Sequence[str]]
) -> str:
    """A line for each pair and policy."""
    lines = [
        (figures.pair, policy, *cells(figures, policy, outcome))
        for figures in every
        for policy, outcome in figures.outcomes.items()
    ]
    return as_csv([("pair", "policy", *columns), *lines])
