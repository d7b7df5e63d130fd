"""Units over the toy model: the real contracts and the real queue, engines of a few lines, and faults on demand."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from functools import partial
from typing import Any

import grpc.aio
from prometheus_client import CollectorRegistry

from hetspec.decoding.history import History
from hetspec.decoding.tree import ROOT, TokenTree
from hetspec.rpc.channel import KeepAlive, server_options
from hetspec.rpc.contracts import DRAFT, PRE_VERIFY, VERIFY, WALK, Contract
from hetspec.rpc.engine_thread import EngineThread
from hetspec.rpc.messages import (
    Draft,
    DraftItem,
    ErrorCode,
    HiddenRows,
    HiddenStates,
    PassResult,
    Rows,
    SessionUpdate,
    TokenLogprobs,
    UnitError,
    VerifyItem,
    Walk,
    WalkItem,
    rows_from_bytes,
)
from hetspec.rpc.work import ShouldStop, Stopped, WorkQueue
from hetspec.v1 import common_pb2, drafter_pb2, sampler_pb2, verifier_pb2, weight_store_pb2, weight_store_pb2_grpc
from orchestrator.engine.engine import Engine
from orchestrator.engine.settings import EngineSettings
from orchestrator.units.settings import FleetSettings, LinkSettings, PrefixSettings, ReplicaSettings
from tests import toy

FINGERPRINT = "toy"
MAX_CONTEXT = 512
KV_TOKENS, PAGE_TOKENS = 4096, 8


class Fault(Enum):
    LOST = auto()  # forgets every session
    REFUSE = auto()  # INTERNAL for the whole task
    NONSENSE = auto()  # an answer that breaks the contract
    FREEZE = auto()  # no answer, ever
    DIE = auto()  # the process ends under the task, and comes back


Chaos = Callable[[], Fault | None]


def no_chaos() -> Fault | None:
    return None


class RandomChaos:
    """A fault of `kinds` in each task with this probability, until the next `quiet` tasks are owed."""

    def __init__(self, seed: int, probability: float, kinds: Sequence[Fault]) -> None:
        self._random = random.Random(seed)
        self.probability = probability
        self._kinds = list(kinds)
        self.faults = 0

    def __call__(self) -> Fault | None:
        if self._random.random() >= self.probability:
            return None
        self.faults += 1
        return self._random.choice(self._kinds)


@dataclass
class Held:
    """What a unit holds for a session."""

    epoch: int
    ids: list[int] = field(default_factory=list)
    tree: TokenTree = field(default_factory=TokenTree)


class Sessions:
    """The contract of SessionUpdate, word by word."""

    def __init__(self) -> None:
        self.held: dict[str, Held] = {}

    def apply(self, update: SessionUpdate) -> Held:
        held = self.held.get(update.session)
        if held is None or update.epoch > held.epoch:
            held = self.held[update.session] = Held(update.epoch, self._beginning(update))
        if update.epoch < held.epoch:
            raise UnitError(ErrorCode.INVALID, "epoch: stale")
        if not held.tree.is_path(update.commit):
            raise UnitError(ErrorCode.INVALID, "commit: not a path of the last tree")
        held.ids += [held.tree.tokens[node] for node in update.commit]
        held.tree = TokenTree()
        history = History(held.ids)
        if (len(history), history.hash) != (update.committed_len, update.committed_hash):
            del self.held[update.session]
            raise UnitError(ErrorCode.SESSION_LOST, f"{len(history)} tokens committed, not {update.committed_len}")
        held.ids += update.append
        return held

    def _beginning(self, update: SessionUpdate) -> list[int]:
        if not update.fork_of:
            return []
        parent = self.held.get(update.fork_of)
        if parent is None or len(parent.ids) < update.committed_len:
            raise UnitError(ErrorCode.SESSION_LOST, f"fork_of: {update.fork_of} holds not so many tokens")
        return parent.ids[: update.committed_len]


class FakeEngine:
    """Counts what it is asked; a fault strikes before the work."""

    reads_features = False  # of a drafter

    def __init__(self, chaos: Chaos, on_death: Callable[[], object]) -> None:
        self.sessions = Sessions()
        self.passes: list[int] = []  # items of each
        self.releases: list[str] = []
        self.gate = threading.Event()  # closed: tasks wait for it, and for should_stop
        self.gate.set()
        self.entered = threading.Event()
        self._chaos = chaos
        self._on_death = on_death
        self._thawed = threading.Event()
        self.peak_context = 0

    def run(self, items: Sequence[Any], should_stop: ShouldStop) -> PassResult[Any]:
        self.passes.append(len(items))
        self.entered.set()
        while not self.gate.wait(0.002):
            if should_stop():
                raise Stopped
        fault = self._chaos()
        match fault:
            case Fault.LOST:
                self.sessions.held.clear()
            case Fault.REFUSE:
                raise UnitError(ErrorCode.INTERNAL, "fake")
            case Fault.FREEZE:
                self._thawed.wait()
            case Fault.DIE:
                self._on_death()
                self._thawed.wait()
        results = tuple(self._run_item(item) for item in items)
        return PassResult(tuple(self.spoil(r) for r in results) if fault is Fault.NONSENSE else results)

    def release(self, sessions: Sequence[str]) -> None:
        self.releases += sessions
        for session in sessions:
            self.sessions.held.pop(session, None)

    def thaw(self) -> None:
        self._thawed.set()
        self.gate.set()

    def _run_item(self, item: Any) -> Any:
        try:
            return self.serve(item)
        except UnitError as error:
            return error

    def serve(self, item: Any) -> Any:
        raise NotImplementedError

    def spoil(self, result: Any) -> Any:
        raise NotImplementedError


class FakeVerifier(FakeEngine):
    def serve(self, item: VerifyItem) -> HiddenStates:
        held = self.sessions.apply(item.update)
        held.tree = item.tree
        self.peak_context = max(self.peak_context, len(held.ids) + len(item.tree))
        if item.hidden is HiddenRows.NONE:
            return HiddenStates()
        first = len(held.ids) - (len(item.update.append) if item.hidden is HiddenRows.ALL else 1)
        rows = [toy.hidden_row(held.ids[: end + 1]).tobytes() for end in range(first, len(held.ids))]
        for node in range(len(item.tree)):
            path = [item.tree.tokens[at] for at in item.tree.path(node)]
            rows.append(toy.hidden_row(held.ids + path).tobytes())
        return HiddenStates(b"".join(rows), len(rows))

    def spoil(self, result: HiddenStates | UnitError) -> HiddenStates | UnitError:
        if isinstance(result, UnitError):
            return result
        return random.choice((HiddenStates(result.data + b"\0" * 16, result.rows + 1), HiddenStates(b"\0", 1)))


class FakeDrafter(FakeEngine):
    """Random trees that hold the right token about as often as not."""

    hits = 0.6

    def serve(self, item: DraftItem) -> Draft:
        before = self._tree_to_grow(item)
        held = self.sessions.apply(item.update)
        key = (self.hits, held.ids) if item.look_ahead is None else (self.hits, held.ids, len(before))
        seeded = random.Random(repr(key))
        tokens, parents, depths = list(before.tokens), list(before.parents), [0] * len(before)

        def grow(parent: int) -> None:
            path = TokenTree(tuple(tokens), tuple(parents)).path(parent) if parent != ROOT else []
            right = toy.next_token(held.ids + [tokens[at] for at in path], item.sampling, item.noise)
            token = right if seeded.random() < self.hits else seeded.randrange(toy.VOCAB_SIZE)
            if (parent, token) not in zip(parents, tokens, strict=True):
                tokens.append(token)
                parents.append(parent)
                depths.append(1 if parent < len(before) else depths[parent] + 1)

        ends = [ROOT]
        if (look := item.look_ahead) is not None:
            found = [*([ROOT] if look.since == 0 else []), *range(look.since, len(before))]
            for i in range(look.outcomes):
                grow(found[-1] if i == 0 else seeded.choice(found))
            ends = []
        for _ in range(item.policy.max_nodes - (len(tokens) - len(before))):
            new = range(len(before), len(tokens))
            open_nodes = [node for node in new if depths[node] < item.policy.max_depth]
            if item.policy.width == 1:
                grow(open_nodes[-1] if open_nodes else len(tokens) - 1)
            elif ends or open_nodes:
                grow(seeded.choice([*ends, *open_nodes]))
        held.tree = TokenTree(tuple(tokens), tuple(parents))
        nodes = len(tokens)
        return Draft(held.tree, (0.5,) * nodes, (drafter_pb2.DRAFT_SOURCE_LOOKUP,) * nodes, 0, (0.0,) * nodes)

    def _tree_to_grow(self, item: DraftItem) -> TokenTree:
        if item.look_ahead is None:
            return TokenTree()
        held = self.sessions.held.get(item.update.session)
        if item.update.commit or item.update.append or item.hidden or held is None:
            raise UnitError(ErrorCode.INVALID, "look_ahead: of a session that is to move on")
        return held.tree

    def spoil(self, result: Draft | UnitError) -> Draft | UnitError:
        return random.choice((Draft(TokenTree.chain(range(400))), Draft(TokenTree((toy.VOCAB_SIZE,), (ROOT,)))))


class PerfectDrafter(FakeDrafter):
    hits = 1.0


class FeatureDrafter(PerfectDrafter):
    """Drafts where it has the target's row before the last token, and checks every row that it is given."""

    reads_features = True

    def __init__(self, chaos: Chaos, on_death: Callable[[], object]) -> None:
        super().__init__(chaos, on_death)
        self.given: dict[tuple[str, int], list[int]] = {}  # by session and epoch: the positions of its rows, in order
        self.held: dict[str, set[int]] = {}  # by session: these, and of the session that it began from
        self.wrong: list[tuple[str, int]] = []

    def serve(self, item: DraftItem) -> Draft:
        draft = super().serve(item)
        session, ids = item.update.session, self.sessions.held[item.update.session].ids
        if item.update.committed_len == 0 or item.update.fork_of:
            shared = self.held.get(item.update.fork_of, set())
            self.held[session] = {position for position in shared if position < item.update.committed_len - 1}
        rows = rows_from_bytes(item.hidden, toy.HIDDEN_SIZE)
        positions = range(len(ids) - 1 - len(rows), len(ids) - 1)
        for position, row in zip(positions, rows, strict=True):
            if position < 0 or row.tobytes() != toy.hidden_row(ids[: position + 1]).tobytes():
                self.wrong.append((session, position))
        self.given.setdefault((session, item.update.epoch), []).extend(positions)
        self.held[session].update(positions)
        if len(rows):
            return draft
        self.sessions.held[session].tree = TokenTree()
        return Draft()


def toy_logprobs(row: Rows, token: int) -> TokenLogprobs:
    """Of a given token after a hidden row: a number that only these two have."""
    return TokenLogprobs(-float(token) - float(row.sum()) % 1000)


class FakeSampler(FakeEngine):
    def serve(self, item: WalkItem) -> Walk:
        rows = rows_from_bytes(item.hidden, toy.HIDDEN_SIZE)
        if item.scored:
            return Walk((), (), tuple(map(toy_logprobs, rows, item.scored)))
        tokens: list[int] = []
        accepted: list[int] = []
        node: int | None = ROOT
        while node is not None and len(tokens) < item.max_tokens and tokens[-1:] != [toy.END_ID]:
            row = rows[node + 1 : node + 2]
            tokens.append(toy.choose(row, item.sampling, item.noise, item.position + len(tokens)))
            node = item.tree.child(node, tokens[-1])
            if node is not None:
                accepted.append(node)
        logprobs = () if item.top_logprobs is None else tuple(TokenLogprobs(-float(token)) for token in tokens)
        return Walk(tuple(tokens), tuple(accepted), logprobs)

    def spoil(self, result: Walk | UnitError) -> Walk | UnitError:
        if isinstance(result, UnitError):
            return result
        return random.choice(
            (
                replace(result, tokens=(toy.VOCAB_SIZE, *result.tokens[1:])),
                replace(result, tokens=()),
                replace(result, accepted=(*result.accepted, 300)),
                replace(result, tokens=result.tokens * 300),
            )
        )


def _identity(unit: str, instance: str, digest: str) -> common_pb2.UnitIdentity:
    return common_pb2.UnitIdentity(
        unit=unit, model="toy", fingerprint=FINGERPRINT, precision="int8", digest=digest, instance=instance
    )


def _describe(unit: str, instance: str, digest: str, reads_features: bool) -> Any:
    identity = _identity(unit, instance, digest)
    match unit:
        case "verifier":
            return verifier_pb2.VerifierDescription(
                identity=identity,
                hidden_size=toy.HIDDEN_SIZE,
                vocab_size=toy.VOCAB_SIZE,
                max_context=MAX_CONTEXT,
                max_rows=64,
                credits=FakeUnit.CREDITS,
                kv_capacity_tokens=KV_TOKENS,
                kv_page_tokens=PAGE_TOKENS,
                verify_ns=common_pb2.CostCurve(rows=[1, 64], costs=[1_000_000, 5_000_000]),
            )
        case "drafter":
            sources = [drafter_pb2.DRAFT_SOURCE_LOOKUP]
            return drafter_pb2.DrafterDescription(
                identity=identity,
                sources=sources,
                max_nodes=64,
                max_depth=16,
                max_context=MAX_CONTEXT,
                kv_capacity_tokens=KV_TOKENS,
                kv_page_tokens=PAGE_TOKENS,
                reads_features=reads_features,
                step_ns=common_pb2.CostCurve(rows=[1, 8], costs=[100_000, 200_000]),
            )
        case _:
            return sampler_pb2.SamplerDescription(
                identity=identity, hidden_size=toy.HIDDEN_SIZE, vocab_size=toy.VOCAB_SIZE, max_logprobs=20
            )


class _Servicer:
    def __init__(self, contract: Contract[Any, Any], engine: FakeEngine, description: Any, queue: WorkQueue) -> None:
        self.queue = queue
        self._contract, self._engine = contract, engine
        self._description = description

    async def Describe(self, _request: Any, _context: Any) -> Any:
        return self._description

    async def Work(self, _requests: Any, context: Any) -> None:
        await self.queue.serve(self._contract, self._engine, context)


class FakeUnit:
    """A unit as a process would be: it can be killed, and comes back with nothing."""

    CREDITS = 2

    def __init__(
        self,
        contract: Contract[Any, Any],
        engine: type[FakeEngine],
        chaos: Chaos = no_chaos,
        digest: str = "d",
        target: type[FakeEngine] | None = None,
        target_chaos: Chaos = no_chaos,
    ) -> None:
        """target: of a drafter that holds it."""
        self.digest = digest
        self.targets: list[FakeEngine] = []
        self._target_type, self._target_chaos = target, target_chaos
        self.contract = contract
        self.port = 0
        self.instance = 0
        self.engines: list[FakeEngine] = []
        self._engine_type = engine
        self._chaos = chaos
        self._restarts = True
        self._server: grpc.aio.Server | None = None
        self._servicer: _Servicer
        self._restarting: set[asyncio.Task[None]] = set()
        self._one_at_a_time = asyncio.Lock()  # deaths may follow one another, and the port is one

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def engine(self) -> FakeEngine:
        return self.engines[-1]

    @property
    def queue(self) -> WorkQueue:
        return self._servicer.queue

    @property
    def held(self) -> set[str]:
        return {session for engine in (*self.engines, *self.targets) for session in engine.sessions.held}

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self.instance += 1
        engine = self._engine_type(self._chaos, partial(loop.call_soon_threadsafe, self._die_soon))
        self.engines.append(engine)
        instance = f"{id(self)}/{self.instance}"
        description = _describe(self.contract.unit, instance, self.digest, self._engine_type.reads_features)
        queue = WorkQueue(self.contract.unit, EngineThread(self.contract.unit), FakeUnit.CREDITS)
        self._servicer = service = _Servicer(self.contract, engine, description, queue)
        self._server = grpc.aio.server(options=server_options(KeepAlive()))
        self.contract.add_servicer(service, self._server)
        if self._target_type is not None:
            target = self._target_type(self._target_chaos, partial(loop.call_soon_threadsafe, self._die_soon))
            self.targets.append(target)
            description.holds_target = True
            held = _describe("verifier", f"{instance}/target", self.digest, False)
            PRE_VERIFY.add_servicer(_Servicer(PRE_VERIFY, target, held, queue), self._server)
        self.port = self._server.add_insecure_port(self.address)
        await self._server.start()

    async def drain(self) -> None:
        """As when it is told to end; returns when it may."""
        await self._servicer.queue.drain()

    async def kill(self) -> None:
        """Connections break, nothing is answered; the engine's thread is let go, for nobody to hear."""
        server, self._server = self._server, None
        if server is not None:
            await server.stop(None)
        for engine in (self.engine, *self.targets[-1:]):
            engine.thaw()

    async def restart(self) -> None:
        """As another instance at the same address."""
        async with self._one_at_a_time:
            await self.kill()
            await self.start()

    async def close(self) -> None:
        self._restarts = False
        for task in self._restarting:
            task.cancel()
        await asyncio.gather(*self._restarting, return_exceptions=True)
        await self.kill()

    def _die_soon(self) -> None:
        task = asyncio.create_task(self._die())
        self._restarting.add(task)
        task.add_done_callback(self._restarting.discard)

    async def _die(self) -> None:
        if self._restarts:
            await self.restart()
        else:
            await self.kill()


class FakeWeightStore(weight_store_pb2_grpc.WeightStoreServicer):
    def __init__(self) -> None:
        self.address = ""
        self._server: grpc.aio.Server | None = None

    async def GetManifest(self, request: Any, context: Any) -> Any:
        return weight_store_pb2.Manifest(
            role=request.role, name="toy", fingerprint=FINGERPRINT, text=toy.text_spec().to_pb()
        )

    async def start(self) -> None:
        self._server = grpc.aio.server()
        weight_store_pb2_grpc.add_WeightStoreServicer_to_server(self, self._server)
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        await self._server.start()

    async def close(self) -> None:
        if self._server is not None:
            await self._server.stop(None)


def fast_settings(
    wait_s: float = 10.0, task_timeout_s: float = 0.5, max_rebuilds: int = 3, prefix_tokens: str = "0"
) -> EngineSettings:
    link = LinkSettings(connect_timeout_s=1.0, task_timeout_s=task_timeout_s, slack_s=0.1)
    replicas = ReplicaSettings(link, resolve_every_s=0.5, backoff_s=(0.01, 0.05), doubt_s=(0.02, 0.1), wait_s=wait_s)
    fleet = FleetSettings(replicas, replicas, replicas, PrefixSettings(prefix_tokens))
    return EngineSettings(prompt_chunk_tokens=16, max_rebuilds=max_rebuilds, fleet=fleet)


@dataclass(frozen=True)
class _Addresses:
    weight_store: str
    verifier: str
    drafter: str
    sampler: str


class World:
    """A weight store, units and an engine, all in this process. An async context manager."""

    def __init__(
        self,
        verifiers: Sequence[FakeUnit] | None = None,
        drafters: Sequence[FakeUnit] | None = None,
        samplers: Sequence[FakeUnit] | None = None,
        settings: EngineSettings | None = None,
    ) -> None:
        self.store = FakeWeightStore()  # type: ignore[abstract]
        self.verifiers = list(verifiers) if verifiers is not None else [FakeUnit(VERIFY, FakeVerifier)]
        self.drafters = list(drafters) if drafters is not None else [FakeUnit(DRAFT, FakeDrafter)]
        self.samplers = list(samplers) if samplers is not None else [FakeUnit(WALK, FakeSampler)]
        self._settings = settings or fast_settings()
        self.registry = CollectorRegistry()
        self.engine: Engine

    @property
    def units(self) -> list[FakeUnit]:
        return [*self.verifiers, *self.drafters, *self.samplers]

    async def __aenter__(self) -> World:
        await self.store.start()
        for unit in self.units:
            await unit.start()
        addresses = _Addresses(
            self.store.address,
            *(",".join(u.address for u in units) for units in (self.verifiers, self.drafters, self.samplers)),
        )
        self.engine = Engine(addresses, self._settings, self.registry)
        await self.engine.start()
        await self.until(lambda: all(self.engine.ready().values()) and self._all_found())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.engine.close()
        for unit in self.units:
            await unit.close()
        await self.store.close()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not condition():
                await asyncio.sleep(0.005)

    async def until_nothing_is_held(self) -> None:
        await self.until(lambda: not any(unit.held for unit in self.units))

    def _all_found(self) -> bool:
        found = self.engine.replicas()
        return all(found[unit.contract.unit] > 0 for unit in self.units)
