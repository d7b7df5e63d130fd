"""One choice of one request: its tokens, which are the truth, and what each unit knows of them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hetspec.decoding.history import History
from hetspec.rpc.messages import Draft, DraftItem, DraftPolicy, HiddenStates, TokenLogprobs, VerifyItem, Walk
from hetspec.v1 import drafter_pb2
from orchestrator.clock.clock import Clock
from orchestrator.engine.chain_length import ChainLength
from orchestrator.engine.draft_backoff import DraftBackoff
from orchestrator.engine.features import Features
from orchestrator.engine.foreseen import Foreseen
from orchestrator.engine.request import GenerationRequest, Statistics
from orchestrator.engine.seat import Mark, Seat, mark_at
from orchestrator.engine.verified import Verified
from orchestrator.policies.lever import Lever
from orchestrator.policies.mode import Part
from orchestrator.timeline.timeline import Timeline
from orchestrator.units.batcher import Served
from orchestrator.units.prefix_source import Ids

_SOURCES = {int(number): name.removeprefix("DRAFT_SOURCE_").lower() for name, number in drafter_pb2.DraftSource.items()}


def source_names(draft: Draft) -> tuple[str, ...]:
    """Of each node: "lookup", "model", "grammar"."""
    return tuple(_SOURCES[source] for source in draft.sources)


@dataclass(frozen=True, slots=True)
class Digests:
    """Only units of these digests may serve a session: others would compute other bits."""

    verifier: str
    sampler: str


class Session:
    """`history` is prompt and output. Its last token is decided; units see it in the round that follows."""

    def __init__(
        self,
        session_id: str,
        request: GenerationRequest,
        digests: Digests,
        clock: Clock,
        timeline: Timeline | None = None,
    ) -> None:
        self.id = session_id
        self.request = request
        self.clock = clock
        self.timeline = timeline or Timeline()
        self.digests = digests
        self.history = History(request.prompt_ids)
        self.mark = Mark(len(self.history), self.history.hash)
        self.verifier: Seat[VerifyItem, HiddenStates] = Seat(session_id)
        self.drafter: Seat[DraftItem, Draft] = Seat(session_id)
        self.pre_verifier: Seat[VerifyItem, HiddenStates] = Seat(session_id)  # in the drafter's process
        self.foreseen = Foreseen()
        self.drafting = DraftBackoff()
        self.chain_length = ChainLength(request.drafting, request.noise.seed, clock)
        self.lever = Lever(request.parts) if Part.COST_TREE in request.parts else None
        self.features: Features | None = None  # where the drafter reads them
        self.draft_item: DraftItem | None = None  # that the drafter grew its last tree for
        self.draft_sources: tuple[str, ...] = ()  # of each node of this round's draft
        repeats = request.sampling.repetition_penalty != 1
        self.distinct_prompt = tuple(sorted(set(request.prompt_ids))) if repeats else ()
        self.prompt_logprobs: list[TokenLogprobs] = []  # of the prompt's second token and on, where it is scored
        self.faults = 0  # of units this session cannot do without, since its last progress
        self.lost_units: set[str] = set()  # since then: incarnations that were lost with an item of this session
        self.waits = 0  # for room in a unit, since then
        self.statistics = Statistics(request.mode, request.noise.seed, lever=self.lever.report if self.lever else None)
        self.statistics.timeline = self.timeline
        self.statistics.drafting = request.drafting
        self.in_units_ns = 0  # waiting for units and their passes, all told

    @property
    def shared_ids(self) -> Ids | None:
        """The history as others may begin with it. None where they may not; a prompt that is scored is read whole."""
        shares = self.request.reuse_prefix and not self.request.scores_prompt
        return np.array(self.history[:], np.uint32) if shares else None

    async def begin(self, seat: Seat[Any, Any], read_again: int = 0) -> None:
        """At a seat just taken, from what its replica has of the history (`Seat.begin_from_others`). Waiting for it to
        be read counts as queue."""
        start_ns = time.perf_counter_ns()
        with self.clock.away():
            await seat.begin_from_others(self.history, self.shared_ids, read_again)
        waited_ns = time.perf_counter_ns() - start_ns
        self.statistics.add_host_ns("queue", waited_ns)
        self.in_units_ns += waited_ns

    @property
    def left(self) -> int:
        """Tokens that may still come."""
        return self.request.max_tokens - (self.mark.length - len(self.request.prompt_ids))

    def begin_round(self, draft: Draft, policy: DraftPolicy | None) -> None:
        """With this draft to be verified. policy: where its costs are to be judged by how the round ends."""
        self.draft_sources = source_names(draft)
        self.statistics.add_draft(draft.tree, self.draft_sources)
        if self.lever is not None:
            self.lever.begin_round(draft, policy)

    def history_with(self, foreseen: Sequence[int]) -> History:
        """And these tokens behind it; not to be changed."""
        return History([*self.history[:], *foreseen]) if foreseen else self.history

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

    def commit(self, walk: Walk, verified: Verified, seats: Sequence[Seat[Any, Any]]) -> Walk:
        """Takes the tokens of a walk over what was verified into the history. Of these seats, a unit that saw this
        round's tree keeps its accepted nodes. The walk over the drafted tree."""
        seats = [seat for seat in seats if seat.known == self.mark]
        accepted = len(walk.accepted)
        if self.features is not None:
            self.features.add_accepted(self.mark.length, verified.hidden, walk.accepted)
        walk = verified.in_draft(walk)
        self._extend(walk.tokens[:accepted])
        for seat in seats:
            seat.advance(self.mark, walk.accepted)
        self._extend(walk.tokens[accepted:])
        self.got_on()
        if self.lever is not None:
            self.lever.learn(walk)
        self.statistics.rounds += 1
        self.statistics.add_accepted([self.draft_sources[node] for node in walk.accepted])
        return walk

    def account(self, unit: str, served: Served[Any]) -> None:
        others_ns = max(0, served.waited_ns + served.busy_ns - served.compute_ns)
        self.statistics.add_host_ns(unit, served.compute_ns)
        self.statistics.add_host_ns("queue", others_ns)
        self.in_units_ns += served.compute_ns + others_ns

    def leave_drafter(self) -> None:
        """What it has been given goes with it."""
        self.drafter.leave()
        self.draft_item = None
        if self.features is not None:
            self.features.begin_again()

    def release(self) -> None:
        """Frees what every unit holds."""
        self.verifier.leave()
        self.drafter.leave()
        self.pre_verifier.leave()

    def end_well(self) -> None:
        """As `release`, but what the units hold may stay there, for others to begin from."""
        if (ids := self.shared_ids) is not None:
            self.verifier.keep(ids)
            self.drafter.keep(ids)
            self.pre_verifier.keep(ids)
        self.release()

    def _extend(self, tokens: Sequence[int]) -> None:
        if tokens:
            self.history.extend(tokens)
            self.mark = Mark(len(self.history), self.history.hash)
