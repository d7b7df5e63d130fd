"""Whose turn it is, on a virtual queue: no clock, no server."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.api.fair_queue import FairQueue, QueueFull, Ticket

NO_LIMIT = 10**9


def served(queue: FairQueue) -> list[Ticket]:
    tickets = []
    while queue.head() is not None:
        tickets.append(queue.pop())
    return tickets


@given(st.lists(st.integers(1, 9)))
def test_one_client_alone_is_served_in_order_of_arrival(places):
    queue = FairQueue(NO_LIMIT)
    tickets = [Ticket("a", count) for count in places]
    for ticket in tickets:
        queue.add(ticket)
    assert served(queue) == tickets
    assert queue.places == 0


def test_a_client_with_one_request_waits_for_one_of_each_other_and_not_for_all_of_theirs():
    queue = FairQueue(NO_LIMIT)
    for _ in range(100):
        queue.add(Ticket("greedy", 1))
    queue.pop()
    modest = Ticket("modest", 1)
    queue.add(modest)
    assert modest in served(queue)[:2]


@settings(max_examples=300)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 8)), min_size=1, max_size=60))
def test_clients_that_wait_are_given_places_within_a_request_of_each_of_one_another(arrivals):
    """The bound of start-time fair queueing: Goyal, Vin and Cheng 1996, theorem 1."""
    queue = FairQueue(NO_LIMIT)
    largest, left = Counter(), Counter()
    for client, places in arrivals:
        queue.add(Ticket(client, places))
        largest[client] = max(largest[client], places)
        left[client] += 1
    given_to = Counter()
    while queue.head() is not None:
        ticket = queue.pop()
        given_to[ticket.client] += ticket.places
        left[ticket.client] -= 1
        backlogged = [client for client in left if left[client]]
        for one, other in pairwise(backlogged):
            assert abs(given_to[one] - given_to[other]) <= largest[one] + largest[other]


def test_who_asks_again_only_when_served_gets_no_more_than_who_keeps_a_queue():
    queue = FairQueue(NO_LIMIT)
    for _ in range(40):
        queue.add(Ticket("queues", 1))
    given_to = Counter[str]()
    queue.add(Ticket("asks again", 1))
    for _ in range(40):
        client = queue.pop().client
        given_to[client] += 1
        if client == "asks again":
            queue.add(Ticket(client, 1))
    assert abs(given_to["queues"] - given_to["asks again"]) <= 2


def test_who_comes_back_has_no_claim_from_the_time_it_was_away():
    queue = FairQueue(NO_LIMIT)
    for _ in range(50):
        queue.add(Ticket("a", 1))
        queue.pop()
    for client in ("a", "b"):
        for _ in range(10):
            queue.add(Ticket(client, 1))
    first = Counter(ticket.client for ticket in served(queue)[:10])
    assert first["b"] - first["a"] <= 2


@settings(max_examples=300)
@given(
    st.integers(1, 20),
    st.lists(st.tuples(st.sampled_from("abcd"), st.integers(1, 6), st.booleans()), max_size=80),
)
def test_a_full_queue_takes_from_those_above_their_share_and_refuses_those_who_would_be(room, arrivals):
    queue, waiting = FairQueue(room), list[Ticket]()
    for client, places, leaves in arrivals:
        if leaves and waiting:
            queue.remove(waiting.pop(0))
        held = Counter[str]()
        for ticket in waiting:
            held[ticket.client] += ticket.places
        clients = len(held.keys() | {client})
        newcomer = Ticket(client, places)
        excess = sum(held.values()) + places - room
        if excess > 0 and (held[client] + places) * clients > room:
            with pytest.raises(QueueFull) as full:
                queue.add(newcomer)
            assert full.value.excess == excess
            continue
        displaced = queue.add(newcomer)
        assert bool(displaced) == (excess > 0)
        for ticket in displaced:
            assert held[ticket.client] * clients > room
            assert ticket == [other for other in waiting if other.client == ticket.client][-1]
            held[ticket.client] -= ticket.places
            waiting.remove(ticket)
        waiting.append(newcomer)
        assert queue.places == sum(ticket.places for ticket in waiting) <= room


def test_a_request_that_needs_many_places_is_not_passed_by_smaller_ones():
    queue = FairQueue(NO_LIMIT)
    queue.add(Ticket("a", 8))
    queue.add(Ticket("b", 1))
    head = queue.head()
    assert head is not None
    assert head.places == 8


def test_more_than_the_whole_queue_is_refused():
    with pytest.raises(QueueFull):
        FairQueue(4).add(Ticket("a", 5))
