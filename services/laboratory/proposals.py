"""What a draft model proposes along a record's answers.

For a given answer it is a function of how many tokens are committed and of the drafted path below them. So it is found
out once, and every way of drafting that asks for it again has it for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from hetspec.drafting.nodes import Proposal

Path = tuple[int, ...]
"""Drafted tokens, from the first below the committed ones on."""

Judge = Callable[[int, Path, float], float]
"""Of a path below the first so many tokens, how likely its last token is to be accepted, which is drafted at this
probability: what an acceptance head says."""

WIDTH = 8
"""Candidates of a proposal at least: the most that an orchestrator asks for."""


class Proposals(Protocol):
    def turn_to(self, place: int) -> None:
        """From now on the record's answer at this place is drafted for."""

    def propose(self, length: int, paths: Sequence[Path]) -> list[Proposal]:
        """What follows each of the paths below the first `length` tokens of prompt and answer."""
