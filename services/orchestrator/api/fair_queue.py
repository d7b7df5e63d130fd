"""Whose turn it is: first come first served, but no client makes another wait for more than its own share.

Start-time fair queueing between clients (Goyal, Vin and Cheng, SIGCOMM 1996). While two clients wait, the places they
were given differ by at most what one request of each takes.
"""

from __future__ import annotations

import itertools
from collections import deque
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class Ticket:
    """Waits for so many places at once."""

    client: str
    places: int
    number: int = 0  # in order of arrival


@dataclass(slots=True)
class _Line:
    """A client's tickets, oldest first. start: the virtual time at which the first of them is due."""

    start: float
    places: int = 0
    tickets: deque[Ticket] = field(default_factory=deque)


class QueueFull(Exception):
    """excess: places that must become free before the ticket may wait."""

    def __init__(self, excess: int) -> None:
        super().__init__(f"{excess} places too few")
        self.excess = excess


class FairQueue:
    """places: how many are waited for, at most `max_places`."""

    def __init__(self, max_places: int) -> None:
        self.places = 0
        self._max_places = max_places
        self._lines: dict[str, _Line] = {}
        self._finish: dict[str, float] = {}  # of what a client was given last, while that lies ahead of now
        self._now = 0.0  # virtual: the start of what was given last
        self._numbers = itertools.count(1)

    def check(self, client: str, places: int) -> None:
        """Raises QueueFull when a ticket may not be added.

        In a full queue every client is entitled to an equal share, and one that stays below it takes what others hold
        beyond theirs.
        """
        excess = self.places + places - self._max_places
        if excess <= 0:
            return
        line = self._lines.get(client)
        waiting = line.places if line else 0
        clients = len(self._lines) + (line is None)
        if (waiting + places) * clients > self._max_places:
            raise QueueFull(excess)

    def add(self, ticket: Ticket) -> list[Ticket]:
        """The tickets that leave to make room: the newest of whoever waits for most. Raises QueueFull."""
        self.check(ticket.client, ticket.places)
        displaced = []
        while self.places + ticket.places > self._max_places:
            longest = max(self._lines.values(), key=lambda line: line.places)
            displaced.append(longest.tickets[-1])
            self.remove(longest.tickets[-1])
        ticket.number = next(self._numbers)
        line = self._lines.get(ticket.client)
        if line is None:
            start = max(self._now, self._finish.get(ticket.client, 0.0))
            line = self._lines[ticket.client] = _Line(start)
        line.tickets.append(ticket)
        line.places += ticket.places
        self.places += ticket.places
        return displaced

    def head(self) -> Ticket | None:
        """Who is next. It holds up all others, however many places it waits for, or it would wait for ever."""
        line = min(self._lines.values(), key=lambda line: (line.start, line.tickets[0].number), default=None)
        return line.tickets[0] if line else None

    def pop(self) -> Ticket:
        """Gives the head its places."""
        ticket = self.head()
        assert ticket is not None
        line = self._lines[ticket.client]
        self._now = line.start
        line.start += ticket.places
        self._finish = {client: finish for client, finish in self._finish.items() if finish > self._now}
        self._finish[ticket.client] = line.start
        self.remove(ticket)
        return ticket

    def remove(self, ticket: Ticket) -> None:
        line = self._lines[ticket.client]
        line.tickets.remove(ticket)
        line.places -= ticket.places
        self.places -= ticket.places
        if not line.tickets:
            del self._lines[ticket.client]
