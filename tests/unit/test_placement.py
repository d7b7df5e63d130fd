"""Where a new session goes, by what its replicas have read and how busy they are."""

from __future__ import annotations

import pytest

from orchestrator.policies.placement import TOKENS_A_SESSION, placement_cost


@pytest.mark.parametrize(
    ("with_prefix", "without", "goes_to_the_prefix"),
    [
        ((0, 40), (0, 0), True),  # equally busy: any prefix wins
        ((1, TOKENS_A_SESSION + 1), (0, 0), True),
        ((1, TOKENS_A_SESSION - 1), (0, 0), False),
        ((6, 6 * TOKENS_A_SESSION - 1), (0, 0), False),
        ((2, 1024), (0, 900), False),  # both have much of it: the idle one
    ],
)
def test_a_prefix_wins_unless_its_replica_is_much_busier(
    with_prefix: tuple[int, int], without: tuple[int, int], goes_to_the_prefix: bool
) -> None:
    assert (placement_cost(*with_prefix) < placement_cost(*without)) == goes_to_the_prefix
