"""Which replica is looked at, and what is told of those that cannot be."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator.units.errors import NoReplica, UnitLost
from orchestrator.units.watch import Watch

NOBODY = "127.0.0.1:1"


def watch(**loads: dict[str, tuple[int, int]]) -> Watch:
    """loads: of each unit, by address: sessions, items under way."""
    fleet: Any = SimpleNamespace(of=lambda unit: SimpleNamespace(loads=loads.get(unit, {})))
    return Watch(fleet, NOBODY, None)


THREE = {"b:7002": (3, 0), "a:7002": (1, 9), "c:7002": (3, 1)}


@pytest.mark.parametrize(("replica", "address"), [(None, "c:7002"), (0, "a:7002"), (2, "c:7002"), ("b:7002", "b:7002")])
def test_a_replica_is_named_by_address_or_place_and_else_the_one_with_most_to_do(
    replica: str | int | None, address: str
) -> None:
    place = watch(verifier=THREE)._find("verifier", replica)
    assert (place.unit, place.address) == ("verifier", address)
    assert place.replica == ["a:7002", "b:7002", "c:7002"].index(address)


@pytest.mark.parametrize(
    ("loads", "replica", "message"),
    [
        (THREE, 3, "there is no verifier 3; there is a:7002, b:7002, c:7002"),
        (THREE, "d:7002", "there is no verifier d:7002; there is a:7002, b:7002, c:7002"),
        ({}, None, "there is no verifier; there is none"),
    ],
)
def test_a_replica_that_is_not_there_is_refused_with_those_that_are(
    loads: dict[str, tuple[int, int]], replica: str | int | None, message: str
) -> None:
    with pytest.raises(NoReplica) as refused:
        watch(verifier=loads)._find("verifier", replica)
    assert str(refused.value) == message


async def test_services_that_cannot_be_reached_are_told_among_the_others() -> None:
    states = await watch(verifier={NOBODY: (0, 0)}).states()
    assert [(state.unit, state.address, state.problem) for state in states] == [
        ("weight_store", NOBODY, "cannot be reached"),
        ("verifier", NOBODY, "cannot be reached"),
    ]


async def test_a_service_that_cannot_be_reached_cannot_be_profiled() -> None:
    with pytest.raises(UnitLost, match=f"weight_store at {NOBODY}: cannot be reached"):
        await watch().profile("weight_store", None, 1)
