"""All five services over real checkpoints: inside the test's event loop (`System`), or as processes (`Processes`)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
from prometheus_client import CollectorRegistry

from drafter import unit as drafter_unit
from drafter.config import DrafterSettings
from drafter.held_target import held_target
from hetspec.decoding.constraint import Grammar
from hetspec.decoding.sampling import NoiseKey, Sampling
from hetspec.rpc.channel import KeepAlive, open_channel
from hetspec.rpc.contracts import DRAFT, VERIFY, WALK, Contract
from hetspec.rpc.server import Server, ServerSettings, Service
from hetspec.rpc.unit import LoadedUnit, Offer, UnitService
from hetspec.v1 import common_pb2
from orchestrator.clock.clock import Arrival
from orchestrator.clock.settings import WorldSettings
from orchestrator.engine.engine import Engine
from orchestrator.engine.request import GenerationRequest, Mode, Statistics
from orchestrator.engine.settings import EngineSettings
from orchestrator.policies.drafting_algorithm import Drafting
from orchestrator.policies.mode import Objective, Part
from orchestrator.units.settings import FleetSettings, LinkSettings, PrefixSettings, ReplicaSettings
from sampler import unit as sampler_unit
from sampler.config import SamplerSettings
from tests.ports import HOST, free_ports
from verifier import unit as verifier_unit
from verifier.config import VerifierSettings
from weight_store.servicer import WeightStoreService
from weight_store.store import Store

UNITS: dict[str, Contract[Any, Any]] = {"verifier": VERIFY, "drafter": DRAFT, "sampler": WALK}
_START_S = 120.0  # to compile kernels, convert a checkpoint and check itself, on a busy machine


@dataclass(frozen=True)
class Ask:
    """One request, as the engine takes it."""

    prompt: tuple[int, ...]
    mode: str = "plain"
    max_tokens: int = 32
    temperature: float = 0.0
    seed: int = 0
    max_nodes: int = 16
    max_depth: int = 5
    grammar: Grammar | None = None
    arrival: Arrival | None = None
    objective: Objective = Objective.LATENCY
    disabled: frozenset[Part] = frozenset()
    outcomes: int = 1
    drafting: Drafting = Drafting.FIXED
    shares_edc: bool = False
    fits_tvc: bool = False

    def request(self, deadline: float | None = None) -> GenerationRequest:
        return GenerationRequest(
            "test",
            self.prompt,
            Sampling(self.temperature),
            NoiseKey(self.seed),
            self.max_tokens,
            Mode(self.mode),
            self.max_nodes,
            self.max_depth,
            grammar=self.grammar,
            deadline=deadline,
            arrival=self.arrival,
            objective=self.objective,
            disabled=self.disabled,
            outcomes=self.outcomes,
            drafting=self.drafting,
            shares_edc=self.shares_edc,
            fits_tvc=self.fits_tvc,
        )


@dataclass(frozen=True)
class Answer:
    tokens: list[int]
    statistics: Statistics


@dataclass(frozen=True)
class Setup:
    """What a system is made of. target, draft: checkpoints. chunk_tokens: of a prompt, in one pass.
    early_exit: a predictor's folder. acceptance: a head's."""

    target: Path
    cache_dir: Path
    draft: Path | None = None
    precision: str = "int8"
    dram_budget: str = "0"
    chunk_tokens: int = 256
    threads: int = 1
    max_context: int = 1024
    kv_tokens: int = 32768
    prefix_tokens: str = "0"  # a unit then holds what running sessions hold, and nothing else
    world: WorldSettings | None = None  # an emulated one
    early_exit: Path | None = None
    acceptance: Path | None = None
    holds_target: bool = False  # the drafter

    def environ(self) -> dict[str, str]:
        """For every service but its own address; each takes what it knows."""
        fields = {"target": self.target, "cache_dir": self.cache_dir, "precision": self.precision}
        fields |= {"dram_budget": self.dram_budget, "threads": self.threads, "max_context": self.max_context}
        fields |= {"kv_tokens": self.kv_tokens, "prefix_tokens": self.prefix_tokens}
        fields |= {"min_gain": 0}  # models made by tests are sure of nothing, and would draft nothing
        fields |= {"draft": self.draft} if self.draft else {}
        fields |= {"early_exit": self.early_exit} if self.early_exit else {}
        fields |= {"acceptance": self.acceptance} if self.acceptance else {}
        fields |= {"holds_target": True} if self.holds_target else {}
        return {f"HETSPEC_{name.upper()}": str(value) for name, value in fields.items()}


@dataclass(frozen=True)
class Addresses:
    weight_store: str
    verifier: str
    drafter: str
    sampler: str


def engine_settings(
    chunk_tokens: int = 256, keep_alive: KeepAlive | None = None, prefix_tokens: str = "0"
) -> EngineSettings:
    """Finds units faster than a user's, and waits longer for one that is being started again."""
    link = LinkSettings(keep_alive=keep_alive or KeepAlive())
    replicas = ReplicaSettings(link, resolve_every_s=0.5, backoff_s=(0.02, 0.2), wait_s=_START_S)
    drafters = replace(replicas, link=replace(link, task_timeout_s=10.0, slack_s=1.0))
    fleet = FleetSettings(replicas, replicas, drafters, PrefixSettings(prefix_tokens))
    return EngineSettings(prompt_chunk_tokens=chunk_tokens, fleet=fleet)


@asynccontextmanager
async def serving(service: Service, port: int = 0) -> AsyncIterator[str]:
    """The address of a service that serves in this event loop."""
    server = Server(service, ServerSettings(HOST, port, grace_s=2.0))
    try:
        await server.start()
        yield f"{HOST}:{server.port}"
    finally:
        await server.stop()


def weight_store(setup: Setup) -> WeightStoreService:
    paths = {"target": setup.target} | ({"draft": setup.draft} if setup.draft else {})
    store = Store(paths, setup.cache_dir, setup.early_exit, setup.acceptance)
    return WeightStoreService(store, check_interval_s=0.2)


def verifier_settings(setup: Setup, store: str) -> VerifierSettings:
    return VerifierSettings(
        weight_store=store,
        precision=setup.precision,
        threads=setup.threads,
        dram_budget=setup.dram_budget,
        max_context=setup.max_context,
        kv_tokens=setup.kv_tokens,
    )


def sampler_settings(setup: Setup, store: str) -> SamplerSettings:
    return SamplerSettings(weight_store=store, precision=setup.precision, threads=setup.threads)


def drafter_settings(setup: Setup, store: str) -> DrafterSettings:
    return DrafterSettings(
        weight_store=store,
        precision=setup.precision,
        threads=setup.threads,
        max_context=setup.max_context,
        kv_tokens=setup.kv_tokens,
        holds_target=setup.holds_target,
    )


Around = Callable[[LoadedUnit[Any, Any]], LoadedUnit[Any, Any]]


def unit_service(kind: str, setup: Setup, store: str, around: Around = lambda loaded: loaded) -> UnitService[Any, Any]:
    """around: what takes the place of everything that is loaded."""
    if kind == "verifier":
        return UnitService(VERIFY, lambda: around(verifier_unit.load(verifier_settings(setup, store))))
    if kind == "sampler":
        return UnitService(WALK, lambda: around(sampler_unit.load(sampler_settings(setup, store))))
    settings = drafter_settings(setup, store)
    beside = [around_offer(offer, around) for offer in held_target(settings)]
    return UnitService(DRAFT, lambda: around(drafter_unit.load(settings)), beside=beside)


def around_offer(offer: Offer[Any, Any], around: Around) -> Offer[Any, Any]:
    return replace(offer, load=lambda: around(offer.load()))


class Requests:
    """What is asked of an engine, and of the units behind it."""

    engine: Engine
    addresses: Addresses
    registry: CollectorRegistry  # the engine's metrics

    def has_found(self, kind: str, address: str) -> bool:
        """Whether the engine knows a unit there."""
        return any(replica.address == address for replica in self.engine._fleet.of(kind).replicas)

    async def generate(self, ask: Ask, on_tokens: Callable[[list[int]], object] | None = None) -> Answer:
        """on_tokens: called after every round with the tokens so far."""
        tokens: list[int] = []
        async with aclosing(self.engine.generate(ask.request())) as generation:
            async for emission in generation:
                tokens += [token.id for token in emission.tokens]
                if on_tokens is not None:
                    on_tokens(tokens)
        return Answer(tokens, generation.statistics)

    async def generate_all(self, asks: Sequence[Ask], at_once: int = 8) -> list[Answer]:
        """Answers in order; `at_once` requests run side by side."""
        room = asyncio.Semaphore(at_once)

        async def one(ask: Ask) -> Answer:
            async with room:
                return await self.generate(ask)

        return list(await asyncio.gather(*(one(ask) for ask in asks)))

    async def describe(self, unit: str) -> Any:
        """The unit's own word (Describe)."""
        async with open_channel(getattr(self.addresses, unit)) as channel:
            return await UNITS[unit].stub(channel).Describe(common_pb2.DescribeRequest())

    async def until_nothing_is_held(self) -> None:
        await until_async(self._nothing_is_held)

    async def _nothing_is_held(self) -> bool:
        units = [await self.describe("verifier"), await self.describe("drafter")]
        return all(unit.sessions == 0 and unit.kv_held_tokens == 0 for unit in units)

    async def _start_engine(self, setup: Setup) -> None:
        self.registry = CollectorRegistry()
        settings = engine_settings(setup.chunk_tokens, prefix_tokens=setup.prefix_tokens)
        settings = replace(settings, world=setup.world)
        self.engine = Engine(self.addresses, settings, self.registry)
        await self.engine.start()
        await until(lambda: all(self.engine.ready().values()) and all(self.engine.replicas().values()), _START_S)


class System(Requests):
    """All five in this event loop. An async context manager."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> System:
        try:
            await self._start()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _start(self) -> None:
        setup, enter = self._setup, self._stack.enter_async_context
        store = await enter(serving(weight_store(setup)))
        units = [await enter(serving(unit_service(kind, setup, store))) for kind in UNITS]
        self.addresses = Addresses(store, *units)
        self._stack.push_async_callback(self._close_engine)
        await self._start_engine(setup)

    async def _close_engine(self) -> None:
        if hasattr(self, "engine"):
            await self.engine.close()


async def until(condition: Callable[[], bool], timeout_s: float = 20.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.01)


async def until_async(condition: Callable[[], Any], timeout_s: float = 20.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not await condition():
            await asyncio.sleep(0.02)


SERVICES = ("weight_store", "verifier", "drafter", "sampler", "orchestrator")


@dataclass
class Processes(Requests):
    """All five as processes, and an engine in this one beside theirs. An async context manager: none outlives it."""

    setup: Setup
    log_dir: Path
    environ: Mapping[str, str] = field(default_factory=dict)  # further settings of all services
    ports: dict[str, int] = field(default_factory=lambda: dict(zip(SERVICES, free_ports(len(SERVICES)), strict=True)))
    metrics_ports: dict[str, int] = field(
        default_factory=lambda: dict(zip(SERVICES, free_ports(len(SERVICES)), strict=True))
    )
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.ports['orchestrator']}"

    async def __aenter__(self) -> Processes:
        self.addresses = Addresses(*(f"{HOST}:{self.ports[name]}" for name in SERVICES[:4]))
        try:
            for name in SERVICES:
                self.start(name)
            await self._start_engine(self.setup)
            await until_async(self.answers, _START_S)
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            if hasattr(self, "engine"):
                await self.engine.close()
        finally:
            for name in list(self.running):
                self.kill(name)

    def after(self, delay_s: float, action: Callable[[], object]) -> None:
        """Does it beside the test; `settle` waits for it."""

        async def act() -> None:
            await asyncio.sleep(delay_s)
            action()

        self._tasks.add(asyncio.create_task(act()))

    def cycle(self, name: str, number: signal.Signals) -> None:
        """Ends it with a signal and starts it again as soon as it is gone, beside the test; `settle` waits for it."""
        process = self.running[name]
        process.send_signal(number)

        async def start_when_gone() -> None:
            await until(lambda: process.poll() is not None)
            del self.running[name]
            self.start(name)

        self._tasks.add(asyncio.create_task(start_when_gone()))

    @property
    def all_done(self) -> bool:
        """Whether nothing is left that was to be done beside the test."""
        return all(task.done() for task in self._tasks)

    async def settle(self) -> None:
        """Until all is done that was to be done beside the test, and all five are there and hold nothing."""
        while not self.all_done:  # one may add another
            await asyncio.gather(*self._tasks)
        self._tasks.clear()
        await until(lambda: all(self.engine.ready().values()) and all(self.engine.replicas().values()), _START_S)
        await until_async(self.answers, _START_S)
        await self.until_nothing_is_held()

    def start(self, name: str) -> None:
        assert name not in self.running
        environ = {key: value for key, value in os.environ.items() if not key.startswith("HETSPEC_")}
        environ |= self.setup.environ() | {"PYTHONPATH": "services", "HETSPEC_PORT": str(self.ports[name])}
        environ |= {f"HETSPEC_{unit.upper()}": f"{HOST}:{self.ports[unit]}" for unit in SERVICES[:4]}
        environ |= {"HETSPEC_METRICS_PORT": str(self.metrics_ports[name]), **self.environ}
        with (self.log_dir / f"{name}.log").open("ab") as log:
            command = [sys.executable, "-m", name]
            self.running[name] = subprocess.Popen(command, env=environ, stdout=log, stderr=log)

    def signal(self, name: str, number: signal.Signals) -> None:
        self.running[name].send_signal(number)

    def kill(self, name: str) -> None:
        process = self.running.pop(name)
        process.kill()
        process.wait()

    def restart(self, name: str) -> None:
        """Ends it without a warning and starts it again on its port."""
        self.kill(name)
        self.start(name)

    def log(self, name: str) -> str:
        return (self.log_dir / f"{name}.log").read_text()

    async def answers(self) -> bool:
        """Whether the orchestrator's process says it is ready."""
        with contextlib.suppress(httpx.TransportError):
            async with httpx.AsyncClient(base_url=self.url, timeout=5.0) as client:
                return (await client.get("/readyz")).status_code == 200
        return False

    async def stream(self, body: dict[str, Any], on_chunk: Callable[[], object] | None = None) -> list[dict[str, Any]]:
        """The chunks of a streamed completion over HTTP. on_chunk: called after each."""
        chunks: list[dict[str, Any]] = []
        async with (
            httpx.AsyncClient(base_url=self.url, timeout=_START_S) as client,
            client.stream("POST", "/v1/completions", json=body | {"stream": True}) as response,
        ):
            async for line in response.aiter_lines():
                data = line.removeprefix("data: ")
                if line.startswith("data: ") and data != "[DONE]":
                    chunks.append(json.loads(data))
                    if on_chunk is not None:
                        on_chunk()
        return chunks
