"""One choice of one request: its tokens, which are the truth, and what each unit knows of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from hetspec.decoding.history import History
from hetspec.rpc.messages import Draft, DraftItem, HiddenStates, SessionUpdate, VerifyItem, Walk
from orchestrator.engine.request import GenerationRequest, Statistics
from orchestrator.units.batcher import Served
from orchestrator.units.replica import Replica

Item = TypeVar("Item")
Result = TypeVar("Result")


class Mark(NamedTuple):
    """A place in the history: how many tokens lie before it, and their hash."""

    length: int
    hash: int


EMPTY = Mark(0, History().hash)


class Seat(Generic[Item, Result]):
    """A session's place in a unit that holds state for it.

    `known` is what the unit has committed once it applies `commit`, the nodes accepted of the tree it saw last.
    """

    __slots__ = ("commit", "epoch", "known", "last", "replica", "session")

    def __init__(self, session: str) -> None:
        self.session = session
        self.replica: Replica[Item, Result] | None = None
        self.last: Replica[Item, Result] | None = None  # where the session was lost
        self.epoch = 1
        self.known = EMPTY
        self.commit: tuple[int, ...] = ()

    def take(self, replica: Replica[Item, Result]) -> None:
        replica.pin(self.session)
        self.replica = replica

    def leave(self) -> None:
        """Frees what the unit holds; the next update opens the session anew, wherever that is."""
        if self.replica is not None:
            self.replica.release(self.session)
        self.last, self.replica = self.replica, None
        self.epoch += 1
        self.known = EMPTY
        self.commit = ()

    def update(self, append: Sequence[int]) -> SessionUpdate:
        return SessionUpdate(self.session, self.epoch, self.known.length, self.known.hash, self.commit, tuple(append))

    def advance(self, mark: Mark, commit: tuple[int, ...] = ()) -> None:
        """The unit has served an update up to `mark`, or will have once it applies `commit`."""
        self.known = mark
        self.commit = commit


@dataclass(frozen=True, slots=True)
class Digests:
    """Only units of these digests may serve a session: others would compute other bits."""

    verifier: str
    sampler: str


class DraftBackoff:
    """After a fault of the drafter, rounds go without it: 1, 2, 4, ... up to 32 of them while faults go on."""

    __slots__ = ("_pause", "_resting")

    def __init__(self) -> None:
        self._pause = 1
        self._resting = 0

    def may_draft(self) -> bool:
        self._resting -= 1
        return self._resting < 0

    def failed(self) -> None:
        self._resting = self._pause
        self._pause = min(2 * self._pause, 32)

    def succeeded(self) -> None:
        self._pause = 1


class Session:
    """`history` is prompt and output. Its last token is decided; units see it in the round that follows."""

    def __init__(self, session_id: str, request: GenerationRequest, digests: Digests) -> None:
        self.id = session_id
        self.request = request
        self.digests = digests
        self.history = History(request.prompt_ids)
        self.mark = Mark(len(self.history), self.history.hash)
        self.verifier: Seat[VerifyItem, HiddenStates] = Seat(session_id)
        self.drafter: Seat[DraftItem, Draft] = Seat(session_id)
        self.drafting = DraftBackoff()
        self.faults = 0  # of units this session cannot do without, since its last progress
        self.waits = 0  # for room in a unit, since then
        self.statistics = Statistics(request.mode, request.noise.seed)
        self.in_units_ns = 0  # waiting for units and their passes, all told

    @property
    def left(self) -> int:
        """Tokens that may still come."""
        return self.request.max_tokens - (self.mark.length - len(self.request.prompt_ids))

    def mark_at(self, length: int) -> Mark:
        return self.mark if length == self.mark.length else Mark(length, History(self.history[:length]).hash)

    def commit(self, walk: Walk) -> None:
        """Takes the walk's tokens into the history. A unit that saw this round's tree keeps its accepted nodes."""
        seats = [seat for seat in (self.verifier, self.drafter) if seat.known == self.mark]
        accepted = len(walk.accepted)
        self._extend(walk.tokens[:accepted])
        for seat in seats:
            seat.advance(self.mark, walk.accepted)
        self._extend(walk.tokens[accepted:])
        self.faults = self.waits = 0
        self.statistics.rounds += 1
        self.statistics.accepted += accepted

    def account(self, unit: str, served: Served[Any]) -> None:
        others_ns = max(0, served.waited_ns + served.busy_ns - served.compute_ns)
        self.statistics.add_host_ns(unit, served.compute_ns)
        self.statistics.add_host_ns("queue", others_ns)
        self.in_units_ns += served.compute_ns + others_ns

    def release(self) -> None:
        """Frees what every unit holds."""
        self.verifier.leave()
        self.drafter.leave()

    def _extend(self, tokens: Sequence[int]) -> None:
        if tokens:
            self.history.extend(tokens)
            self.mark = Mark(len(self.history), self.history.hash)
