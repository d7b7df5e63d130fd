"""A target whose answers were recorded: what it would say is known, what saying it costs is the emulated world's to
tell. Rounds draft as ever; verification and choice are answered from the record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from hetspec.decoding.tree import ROOT, TokenTree
from hetspec.hardware.platform import Role
from hetspec.hardware.work import ItemRows, VerifyWork, WalkWork
from hetspec.rpc.messages import Draft, Walk
from orchestrator.clock.world import World
from orchestrator.engine import conditions
from orchestrator.engine.foreseen import Foreseen, agreement
from orchestrator.engine.model import ModelBounds
from orchestrator.engine.session import Session
from orchestrator.engine.verified import Verified
from orchestrator.policies.batching import prompt_chunk_tokens
from orchestrator.policies.mode import Part
from orchestrator.timeline.task import Kind
from orchestrator.units.known_queue import KnownQueue


@dataclass(frozen=True, slots=True)
class RecordedAnswer:
    """tokens: of the answer. rows: float32 [prompt + tokens, hidden] or fewer, the target's hidden rows; none where no
    draft reads them."""

    tokens: tuple[int, ...]
    rows: NDArray[np.float32] | None


Recorded = Mapping[tuple[int, ...], RecordedAnswer]
"""By prompt."""


class RecordedVerifying:
    """As Verifying. n_layers: of the model that was recorded."""

    def __init__(self, recorded: Recorded, world: World, bounds: ModelBounds, n_layers: int) -> None:
        self._recorded = recorded
        self._queue = KnownQueue(world, Role.VERIFIER)
        self._bounds = bounds
        self._n_layers = n_layers
        self._known: WeakKeyDictionary[Session, int] = WeakKeyDictionary()  # tokens that a verifier would have

    def needs_prefill(self, session: Session) -> bool:
        return session.mark.length - self._known.get(session, 0) > self._chunk

    async def prefill(self, session: Session) -> None:
        while self.needs_prefill(session):
            start = self._known.get(session, 0)
            await self._pass(session, start, start + self._chunk, TokenTree())

    async def verify(self, session: Session, draft: Draft) -> Verified:
        """As Verifying.verify: rows of nodes that are not accepted are zero."""
        tree = draft.tree
        await self.prefill(session)
        await self._pass(session, self._known.get(session, 0), session.mark.length, tree)
        session.statistics.verified += len(tree)
        accepted = chosen(self._recorded[session.request.prompt_ids], session, tree, self._bounds).accepted
        self._known[session] = session.mark.length + len(accepted)
        found = self._recorded[session.request.prompt_ids].rows
        if found is None:
            return Verified.of(tree, b"")
        rows = np.zeros((1 + len(tree), found.shape[1]), np.float32)
        rows[0] = found[session.mark.length - 1]
        for depth, node in enumerate(accepted):
            rows[1 + node] = found[session.mark.length + depth]
        return Verified.of(tree, rows.tobytes())

    async def _pass(self, session: Session, start: int, stop: int, tree: TokenTree) -> None:
        kv_len = (*range(start + 1, stop + 1), *(stop + depth for depth in tree.depths()))
        work = VerifyWork((ItemRows(kv_len),), (len(kv_len),) * self._n_layers)
        is_last = stop == session.mark.length
        with session.timeline.task(Kind.VERIFY if is_last else Kind.PREFILL, f"{len(kv_len)} rows") as task:
            await self._queue.perform(work, len(kv_len))
        if is_last:
            session.timeline.judge(task)
        self._known[session] = stop
        rows = self._recorded[session.request.prompt_ids].rows
        if session.features is not None and rows is not None:
            session.features.add(start, rows[start:stop].tobytes())

    @property
    def _chunk(self) -> int:
        return prompt_chunk_tokens(self._bounds.prompt_chunk_tokens, 1)


class RecordedChoosing:
    """As Choosing."""

    def __init__(self, recorded: Recorded, world: World, bounds: ModelBounds) -> None:
        self._recorded = recorded
        self._queue = KnownQueue(world, Role.SAMPLER)
        self._bounds = bounds

    async def choose(self, session: Session, tree: TokenTree, hidden: bytes) -> Walk:
        walk = chosen(self._recorded[session.request.prompt_ids], session, tree, self._bounds)
        rows, lazy = 1 + len(tree), Part.LAZY_HEAD not in session.request.disabled
        with session.timeline.task(Kind.WALK, f"{rows} rows"):
            await self._queue.perform(WalkWork(rows, len(walk.tokens) if lazy else rows, lazy), rows)
        return walk


class RecordedPreVerifying:
    """As PreVerifying, on a drafter that holds the target where the hardware has room for it."""

    def __init__(self, recorded: Recorded, world: World, bounds: ModelBounds, n_layers: int) -> None:
        self._recorded = recorded
        self._world = world
        self._passes, self._walks = KnownQueue(world, Role.PRE_VERIFIER), KnownQueue(world, Role.PRE_SAMPLER)
        self._bounds = bounds
        self._n_layers = n_layers

    def is_possible(self, session: Session) -> bool:
        return self._world.hardware.pre_verifies

    async def check(self, session: Session, tokens: Sequence[int]) -> int:
        foreseen = session.foreseen.beyond(session.history)
        agreed = agreement(tokens, foreseen)
        coming = self._coming(session)
        if agreed < len(foreseen) or agreed == len(tokens) or len(foreseen) == len(coming):
            return agreed
        start, length = session.mark.length, session.mark.length + len(foreseen)
        rest, right = tokens[agreed:], coming[len(foreseen) :]
        confirmed = agreement(rest, right)
        told = right[: confirmed + 1]
        with session.timeline.task(Kind.PRE_VERIFY, f"{len(rest)} tokens"):
            rows = 1 + len(rest)
            items = (ItemRows(tuple(range(length, length + rows))),)
            await self._passes.perform(VerifyWork(items, (rows,) * self._n_layers, role=Role.PRE_VERIFIER), rows)
            await self._walks.perform(WalkWork(rows, len(told), role=Role.PRE_SAMPLER), rows)
        found = self._recorded[session.request.prompt_ids].rows
        if session.features is not None and found is not None:
            session.features.add(length - 1, found[length - 1 : length + confirmed].tobytes())
        session.foreseen = Foreseen(start, (*foreseen, *told))
        return agreed + confirmed

    def _coming(self, session: Session) -> tuple[int, ...]:
        """All tokens that the session has still to say."""
        first = session.mark.length - len(session.request.prompt_ids)
        tokens = self._recorded[session.request.prompt_ids].tokens[first : first + session.left]
        ends = conditions.end_ids(session.request, self._bounds)
        last = next((place for place, token in enumerate(tokens, 1) if token in ends), len(tokens))
        return tokens[:last]


def chosen(answer: RecordedAnswer, session: Session, tree: TokenTree, bounds: ModelBounds) -> Walk:
    """The walk that gives the recorded tokens."""
    ends, first = conditions.end_ids(session.request, bounds), session.mark.length - len(session.request.prompt_ids)
    children = {(parent, token): i for i, (parent, token) in enumerate(zip(tree.parents, tree.tokens, strict=True))}
    tokens, accepted, node = list[int](), list[int](), ROOT
    for token in answer.tokens[first : first + session.left]:
        tokens.append(token)
        if (child := children.get((node, token))) is None:
            break
        accepted.append(child)
        node = child
        if token in ends:
            break
    return Walk(tuple(tokens), tuple(accepted))
