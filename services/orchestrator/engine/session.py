"""One choice of one request: its tokens, which are the truth, and what each unit knows of them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from hetspec.decoding.history import History
from hetspec.rpc.messages import (
    Draft,
    DraftItem,
    ErrorCode,
    HiddenStates,
    SessionUpdate,
    TokenLogprobs,
    UnitError,
    VerifyItem,
    Walk,
)
from orchestrator.engine.request import GenerationRequest, Statistics
from orchestrator.units.batcher import Served
from orchestrator.units.prefix_source import Fork, Ids
from orchestrator.units.replica import Replica

Item = TypeVar("Item")
Result = TypeVar("Result")


class Mark(NamedTuple):
    """A place in the history: how many tokens lie before it, and their hash."""

    length: int
    hash: int


EMPTY = Mark(0, History().hash)


def mark_at(history: History, length: int) -> Mark:
    return Mark(length, History(history[:length]).hash)


class Seat(Generic[Item, Result]):
    """A session's place in a unit that holds state for it.

    `known` is what the unit has committed once it applies `commit`, the nodes accepted of the tree it saw last. With a
    `fork`, the unit is still to be told to begin from it.
    """

    __slots__ = ("commit", "epoch", "fork", "known", "last", "replica", "session")

    def __init__(self, session: str) -> None:
        self.session = session
        self.replica: Replica[Item, Result] | None = None
        self.last: Replica[Item, Result] | None = None  # where the session was lost
        self.epoch = 1
        self.known = EMPTY
        self.commit: tuple[int, ...] = ()
        self.fork: Fork | None = None

    def take(self, replica: Replica[Item, Result]) -> None:
        replica.pin(self.session)
        self.replica = replica

    async def begin_from_others(self, history: History, ids: Ids | None) -> None:
        """Takes over the longest beginning that a session of this replica has, or is just reading. ids: the history's,
        where it may be shared."""
        assert self.replica is not None
        self.fork = None if ids is None else await self.replica.prefixes.begin(self.session, ids)
        if self.fork is not None:
            self.known = mark_at(history, self.fork.length)

    def leave(self) -> None:
        """Frees what the unit holds; the next update opens the session anew, wherever that is."""
        if self.replica is not None:
            if self.fork is not None:
                self.replica.prefixes.dropped(self.fork)
            self.replica.release(self.session)
        self.fork = None
        self.last, self.replica = self.replica, None
        self.epoch += 1
        self.known = EMPTY
        self.commit = ()

    def keep(self, ids: Ids) -> None:
        """Leaves what the unit has committed of a complete history for others to begin from."""
        if self.replica is not None:
            self.replica.keep(self.session, ids[: self._committed])
            self.replica = None

    def update(self, append: Sequence[int], nodes: int = 0) -> SessionUpdate:
        """Of the item that comes next; room is made for it and its tree."""
        assert self.replica is not None
        known, source = self.known, self.fork.source.session if self.fork else ""
        self.replica.prefixes.reserve(self.session, known.length + len(append) + nodes)
        return SessionUpdate(
            self.session, self.epoch, known.length, known.hash, self.commit, tuple(append), fork_of=source
        )

    def advance(self, mark: Mark, commit: tuple[int, ...] = ()) -> None:
        """The unit has served an update up to `mark`, or will have once it applies `commit`."""
        assert self.replica is not None
        self.known = mark
        self.commit = commit
        if self.fork is not None:
            self.replica.prefixes.served(self.fork)
            self.fork = None
        self.replica.prefixes.advance(self.session, self._committed)

    def gives_up_shared(self, fault: Exception) -> bool:
        """Whether the fault is due to what is shared here and nobody is to blame: the session begins again without."""
        if self.replica is None or not isinstance(fault, UnitError):
            return False
        if fault.code is ErrorCode.SESSION_LOST and self.fork is not None:
            self.replica.prefixes.lost(self.fork)
            self.fork = None
            return True
        return fault.code is ErrorCode.EXHAUSTED and self.replica.prefixes.evict_all("exhausted")

    @property
    def _committed(self) -> int:
        return self.known.length - len(self.commit)


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
        self.draft_sources: tuple[str, ...] = ()  # of each node of this round's draft
        repeats = request.sampling.repetition_penalty != 1
        self.distinct_prompt = tuple(sorted(set(request.prompt_ids))) if repeats else ()
        self.prompt_logprobs: list[TokenLogprobs] = []  # of the prompt's second token and on, where it is scored
        self.faults = 0  # of units this session cannot do without, since its last progress
        self.lost_units: set[str] = set()  # since then: incarnations that were lost with an item of this session
        self.waits = 0  # for room in a unit, since then
        self.statistics = Statistics(request.mode, request.noise.seed)
        self.in_units_ns = 0  # waiting for units and their passes, all told

    @property
    def shared_ids(self) -> Ids | None:
        """The history as others may begin with it. None where they may not; a prompt that is scored is read whole."""
        shares = self.request.reuse_prefix and not self.request.scores_prompt
        return np.array(self.history[:], np.uint32) if shares else None

    async def begin(self, seat: Seat[Any, Any]) -> None:
        """At a seat just taken, from what its replica has of the history. Waiting for it to be read counts as queue."""
        start_ns = time.perf_counter_ns()
        await seat.begin_from_others(self.history, self.shared_ids)
        waited_ns = time.perf_counter_ns() - start_ns
        self.statistics.add_host_ns("queue", waited_ns)
        self.in_units_ns += waited_ns

    @property
    def left(self) -> int:
        """Tokens that may still come."""
        return self.request.max_tokens - (self.mark.length - len(self.request.prompt_ids))

    def mark_at(self, length: int) -> Mark:
        return self.mark if length == self.mark.length else mark_at(self.history, length)

    @property
    def is_suspect(self) -> bool:
        """Something failed under its last item: what it asks next should take nobody else with it."""
        return bool(self.faults or self.lost_units)

    def got_on(self) -> None:
        """Progress was made: what came before it no longer counts."""
        self.faults = self.waits = 0
        self.lost_units.clear()

    def commit(self, walk: Walk) -> None:
        """Takes the walk's tokens into the history. A unit that saw this round's tree keeps its accepted nodes."""
        seats = [seat for seat in (self.verifier, self.drafter) if seat.known == self.mark]
        accepted = len(walk.accepted)
        self._extend(walk.tokens[:accepted])
        for seat in seats:
            seat.advance(self.mark, walk.accepted)
        self._extend(walk.tokens[accepted:])
        self.got_on()
        self.statistics.rounds += 1
        self.statistics.add_accepted([self.draft_sources[node] for node in walk.accepted])

    def account(self, unit: str, served: Served[Any]) -> None:
        others_ns = max(0, served.waited_ns + served.busy_ns - served.compute_ns)
        self.statistics.add_host_ns(unit, served.compute_ns)
        self.statistics.add_host_ns("queue", others_ns)
        self.in_units_ns += served.compute_ns + others_ns

    def release(self) -> None:
        """Frees what every unit holds."""
        self.verifier.leave()
        self.drafter.leave()

    def end_well(self) -> None:
        """As `release`, but what the units hold may stay there, for others to begin from."""
        if (ids := self.shared_ids) is not None:
            self.verifier.keep(ids)
            self.drafter.keep(ids)
        self.release()

    def _extend(self, tokens: Sequence[int]) -> None:
        if tokens:
            self.history.extend(tokens)
            self.mark = Mark(len(self.history), self.history.hash)
