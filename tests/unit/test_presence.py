"""What a request's time went on, against counting nanosecond by nanosecond."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from hetspec.hardware.cost import Component, Cost
from orchestrator.clock.presence import REQUEST, Charge, Key, Presence, time_of


class Task(NamedTuple):
    """waits: by session that it is for, how long."""

    device: str
    start_ns: int
    took_ns: int
    waits: dict[int, int]


TASKS = st.lists(
    st.builds(
        Task,
        st.sampled_from(["npu", "cpu"]),
        st.integers(10, 40),
        st.integers(1, 12),
        st.dictionaries(st.integers(0, 2), st.integers(0, 10), min_size=1),
    ),
    max_size=6,
)


def presences_of(tasks: list[Task]) -> list[Presence]:
    """Three sessions that come at once and leave one after another, some before their tasks are over."""
    presences = [Presence(number, arrival_ns=0, end_ns=30 + 5 * number) for number in range(3)]
    for device, start_ns, took_ns, waits in tasks:
        cost = Cost(device, {Component.COMPUTE: took_ns})
        for number, wait_ns in waits.items():
            charge = Charge("toy", 0, start_ns - wait_ns, start_ns, 1, len(waits), cost, ())
            presences[number].charges.append(charge)
    return presences


def counted(tasks: list[Task], number: int | None, end_ns: int) -> Counter[Key]:
    """Of one session, or of all."""
    told, at_once = Counter[Key](), Counter[int]()
    for device, start_ns, took_ns, waits in tasks:
        mine = [wait_ns for session, wait_ns in waits.items() if number in (None, session)]
        if not mine:
            continue
        told[device, "compute"] += took_ns
        told[device, "waited"] += max(mine)
        at_once.update(range(start_ns - max(mine), start_ns + took_ns))
    for at_ns, count in at_once.items():
        told[REQUEST, "overlapped"] -= count - (at_ns < end_ns)
    told[REQUEST, "waited"] = sum(not at_once[at_ns] for at_ns in range(end_ns))
    return Counter({key: ns for key, ns in told.items() if ns})


@given(TASKS)
def test_each_moment_of_a_session_and_of_a_request_is_told_once_under_its_name(tasks: list[Task]) -> None:
    presences = presences_of(tasks)
    for number, presence in enumerate(presences):
        assert presence.time_ns() == counted(tasks, number, presence.end_ns)
        assert presence.time_ns().total() == presence.total_ns
    assert time_of(presences) == counted(tasks, None, presences[-1].end_ns)
    assert time_of(presences).total() == presences[-1].end_ns
