"""The asynchronous pipeline over toy steps in a virtual world: a drafter and a verifier that take what they are asked
to take, and toy models whose every answer is known."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from types import SimpleNamespace
from typing import Any

from hetspec.decoding.sampling import NoiseKey, Sampling
from hetspec.decoding.tree import ROOT, TokenTree
from hetspec.hardware.cost import Component, Cost
from hetspec.rpc.messages import Draft, DraftPolicy, LookAhead, Walk
from hetspec.v1.drafter_pb2 import DRAFT_SOURCE_MODEL
from orchestrator.clock.presence import Presence
from orchestrator.engine.drafting import Drafted
from orchestrator.engine.foreseen import Foreseen, agreement
from orchestrator.engine.pipeline import Pipeline
from orchestrator.engine.pre_verifying import UNKNOWN
from orchestrator.engine.request import GenerationRequest, Mode
from orchestrator.engine.round import Steps
from orchestrator.engine.seat import EMPTY
from orchestrator.engine.session import Digests, Session
from orchestrator.engine.verified import Verified
from orchestrator.policies.batch_length import BatchLength
from orchestrator.policies.control import AheadReport, Control
from orchestrator.policies.edc import Edc, EdcTables
from orchestrator.policies.thrift import EnergyCosts, Thrift
from orchestrator.policies.tvc import Tvc
from tests import toy
from tests.toy_world import ToyUnit, ToyWorld

MAX_NODES = 64


class CutUnit(ToyUnit):
    """What nobody waits for any more ends at once."""

    async def ask(self, cost_ns: int) -> int:
        try:
            return await super().ask(cost_ns)
        except asyncio.CancelledError:
            self.cut()
            raise

    def cut(self) -> None:
        held = self._held
        if held is None or not held.result.cancelled():
            return
        if self.is_priced:
            (began_ns, end_ns), now_ns = self.spans[-1], self._world.now_ns()
            whole, part = (Cost(self.device, {Component.COMPUTE: ns}) for ns in (end_ns - began_ns, now_ns - began_ns))
            self._world.hardware.devices.cut(began_ns, whole, part)
            self._world.cut(self, now_ns)
        else:
            self._held = None
            self._world.dropped(self)


@dataclass
class Plan:
    """draft_ns: of a node; prompt_ns: of the prompt, before the drafter's first; verify_ns: of a pass; check_ns: of a
    token that the drafter checks. hits: how often a drafted token is the right one."""

    prompt: tuple[int, ...] = (1, 2, 3)
    max_tokens: int = 24
    length: int = 4
    outcomes: int = 1
    hits: float = 0.6
    seed: int = 0
    width: int = 1
    draft_ns: Callable[[], int] = lambda: 10
    prompt_ns: int = 0
    verify_ns: Callable[[], int] = lambda: 100
    check_ns: Callable[[], int] = lambda: 20
    edc: bool = False
    tvc: bool = False
    batch_length: bool = False
    energy: EnergyCosts | None = None  # with batch_length: what counts instead of time
    fails: Callable[[], bool] = lambda: False

    @cached_property
    def request(self) -> GenerationRequest:
        return GenerationRequest(
            "r", self.prompt, Sampling(), NoiseKey(self.seed), self.max_tokens, Mode.AHASD, 32, self.length
        )

    @property
    def expected(self) -> list[int]:
        return toy.continuation(self.prompt, self.max_tokens, Sampling(), NoiseKey(self.seed))


@dataclass
class ToySteps:
    """Drafting, verifying and choosing at once."""

    plan: Plan
    drafter: ToyUnit
    verifier: ToyUnit
    random: random.Random = field(init=False)
    _base: list[int] = field(default_factory=list)  # what the tree hangs below

    def __post_init__(self) -> None:
        self.random = random.Random(self.plan.seed)

    def has_long_to_read(self, session: Session) -> bool:
        return self.plan.prompt_ns > 0 and not session.drafter.known.length

    def energy(self, session: Session) -> EnergyCosts | None:
        return self.plan.energy

    async def draft(
        self, session: Session, foreseen: tuple[int, ...], sized: Callable[[DraftPolicy], DraftPolicy]
    ) -> Drafted:
        depth = min(self.plan.length, session.left - 1 - len(foreseen))
        if depth < 1:
            return Drafted()
        policy = sized(DraftPolicy(depth * self.plan.width, depth, self.plan.width, (DRAFT_SOURCE_MODEL,)))
        self._base = [*session.history[:], *foreseen]
        draft = self._grown(TokenTree(), [ROOT], policy.max_nodes, policy.max_depth, self.plan.width)
        reading_ns = 0 if session.drafter.known.length else self.plan.prompt_ns
        await self.drafter.ask(reading_ns + len(draft.tree) * self.plan.draft_ns())
        session.drafter.known = session.mark
        return Drafted(draft, policy)

    async def look_ahead(self, session: Session, before: Draft, look: LookAhead, policy: DraftPolicy) -> Drafted | None:
        ends = [*([ROOT] if look.since == 0 else []), *range(look.since, len(before.tree))]
        draft = self._outcomes(before.tree, ends, look.outcomes)
        starts = list(range(len(before.tree), len(draft.tree)))
        left = policy.max_nodes - len(starts)
        if policy.max_depth > 1 and left > 0:
            draft = self._grown(draft.tree, starts, left, policy.max_depth - 1, policy.width)
        await self.drafter.ask((len(draft.tree) - len(before.tree)) * self.plan.draft_ns())
        if self.plan.fails():
            session.drafter.known = EMPTY  # whoever drafts next has all to read
            return None
        return Drafted(draft, policy)

    def is_possible(self, session: Session) -> bool:
        return True

    async def check(self, session: Session, tokens: list[int]) -> int:
        known = session.foreseen.beyond(session.history)
        start, ids = session.mark.length, [*session.history[:], *known]
        await self.drafter.ask((len(tokens) - len(known)) * self.plan.check_ns() if len(tokens) > len(known) else 0)
        if self.plan.fails():
            return UNKNOWN
        agreed = agreement(tokens, known)
        while agreed == len(known) < session.left and known[-1:] != (toy.END_ID,):
            known = (*known, self._right(ids))
            ids.append(known[-1])
            agreed += tokens[agreed : agreed + 1] == [known[-1]]
        session.foreseen = Foreseen(start, known)
        return agreed

    def needs_prefill(self, session: Session) -> bool:
        return False

    async def verify(self, session: Session, draft: Draft) -> Verified:
        await self.verifier.ask(self.plan.verify_ns())
        return Verified.of(draft.tree, b"")

    async def choose(self, session: Session, tree: TokenTree, hidden: bytes) -> Walk:
        tokens, accepted, node = list[int](), list[int](), ROOT
        while len(tokens) < session.left and tokens[-1:] != [toy.END_ID]:
            tokens.append(self._right(list(session.history) + tokens))
            child = tree.child(node, tokens[-1])
            if child is None:
                break
            accepted.append(child)
            node = child
        return Walk(tuple(tokens), tuple(accepted))

    def _right(self, ids: list[int]) -> int:
        return toy.next_token(ids, self.plan.request.sampling, self.plan.request.noise)

    def _outcomes(self, tree: TokenTree, ends: list[int], count: int) -> Draft:
        for place in range(count):
            tree = self._child(tree, ends[-1] if place == 0 else self.random.choice(ends))
        return _draft(tree)

    def _grown(self, tree: TokenTree, starts: list[int], nodes: int, depth: int, width: int) -> Draft:
        depths = dict.fromkeys(starts, 0)
        for _ in range(nodes):
            open_nodes = [node for node in depths if depths[node] < depth]
            parent = open_nodes[-1] if width == 1 else self.random.choice(open_nodes)
            grown = self._child(tree, parent)
            if len(grown) > len(tree):
                depths[len(tree)] = depths[parent] + 1
            tree = grown
            if not any(value < depth for value in depths.values()):
                break
        return _draft(tree)

    def _child(self, tree: TokenTree, parent: int) -> TokenTree:
        right = self._right(self._base + [tree.tokens[node] for node in tree.path(parent)])
        wrong = (right + 1 + self.random.randrange(toy.VOCAB_SIZE - 1)) % toy.VOCAB_SIZE
        token = right if self.random.random() < self.plan.hits else wrong
        if tree.child(parent, token) is not None:
            return tree
        return TokenTree((*tree.tokens, token), (*tree.parents, parent))


def _draft(tree: TokenTree) -> Draft:
    nodes = len(tree)
    return Draft(tree, (0.5,) * nodes, (DRAFT_SOURCE_MODEL,) * nodes, 0, (0.5,) * nodes)


@dataclass
class Run:
    """round_ns: when each round ended."""

    tokens: list[int]
    round_ns: list[int]
    report: AheadReport
    presence: Presence


class ToyPipeline:
    def __init__(self, plan: Plan, delay: Callable[[], int] = lambda: 0) -> None:
        self.toy = ToyWorld(delay)
        world = self.toy.world
        self.drafter, self.verifier = CutUnit(world, "cpu", 2, delay), CutUnit(world, "npu", 3, delay)
        self.plan = plan

    async def run(self, control: Control | None = None) -> Run:
        request, world = self.plan.request, self.toy.world
        plan = self.plan
        edc, tvc = Edc(EdcTables(), 5.0) if plan.edc else None, Tvc() if plan.tvc else None
        length = BatchLength() if plan.batch_length else None
        thrift = Thrift(length) if length is not None and plan.energy is not None else None
        control = control or Control(plan.outcomes, edc, tvc, length, thrift)
        session = Session("s", request, Digests("", ""), world)
        session.drafter.replica = SimpleNamespace(description=SimpleNamespace(max_nodes=MAX_NODES))  # type: ignore[assignment]
        steps: Any = ToySteps(self.plan, self.drafter, self.verifier)
        pipeline = Pipeline(session, Steps(steps, steps, steps, steps, steps), control)
        tokens, round_ns = list[int](), list[int]()
        async with world.present(None) as presence:
            assert presence is not None
            try:
                while session.left > 0 and tokens[-1:] != [toy.END_ID]:
                    tokens += (await pipeline.next()).tokens
                    round_ns.append(world.now_ns())
                await pipeline.close()
            finally:
                pipeline.abort()
        return Run(tokens, round_ns, control.report, presence)
