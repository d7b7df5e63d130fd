"""When a drafter has so much to read that its verifier should not wait for it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from hetspec.drafting.costs import CostCurve, DraftCosts
from hetspec.v1.drafter_pb2 import DRAFT_SOURCE_LOOKUP, DRAFT_SOURCE_MODEL, DrafterDescription
from orchestrator.engine.drafting import Drafting
from orchestrator.engine.seat import EMPTY, Mark

COSTS = DraftCosts(0, CostCurve(((1, 1000), (8, 1400))), CostCurve(((1, 30), (4, 30), (8, 50))))


def drafting(costs: DraftCosts | None = COSTS, sources: tuple[Any, ...] = (DRAFT_SOURCE_MODEL,)) -> Drafting:
    replica = SimpleNamespace(description=DrafterDescription(sources=sources))
    drafters: Any = SimpleNamespace(try_pick=lambda **_: replica)
    return Drafting(drafters, Any, SimpleNamespace(costs=lambda query: costs))  # type: ignore[arg-type]


def session(tokens: int, known: Mark = EMPTY, grammar: object = None) -> Any:
    seat = SimpleNamespace(replica=None, last=None, known=known)
    request = SimpleNamespace(grammar=grammar)
    return SimpleNamespace(mark=Mark(tokens, 1), drafter=seat, shared_ids=None, request=request)


@pytest.mark.parametrize("tokens", [1, 8, 97, 98, 99, 2000])
def test_it_is_long_where_reading_takes_more_than_half_a_pass(tokens: int) -> None:
    reading = 30 if tokens <= 4 else 50 + 5 * (tokens - 8)  # the last rows that are told of cost 5 each
    assert drafting().has_long_to_read(session(tokens)) == (reading > 1000 / 2)


def test_nothing_is_long_that_was_read_or_is_never_read_or_costs_nobody_knows_what() -> None:
    assert drafting().has_long_to_read(session(2000))
    assert not drafting().has_long_to_read(session(2000, Mark(1999, 1)))
    assert not drafting(sources=(DRAFT_SOURCE_LOOKUP,)).has_long_to_read(session(2000))
    assert not drafting(None).has_long_to_read(session(2000))
    assert not drafting().has_long_to_read(session(2000, grammar="which foretells tokens without reading"))
