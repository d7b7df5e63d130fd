"""A unit as a process serves it: its contracts over its engines, loaded and run on its one engine thread."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import grpc.aio

from hetspec.model.lease import WeightsError
from hetspec.model.self_check import SelfCheckError
from hetspec.model.weights import WeightSource
from hetspec.rpc.contracts import Contract
from hetspec.rpc.engine_thread import EngineThread
from hetspec.rpc.logs import log_event
from hetspec.rpc.messages import ErrorCode, UnitError
from hetspec.rpc.server import StartError
from hetspec.rpc.work import UnitEngine, WorkQueue
from hetspec.telemetry.open_traces import TracesError
from hetspec.telemetry.profile import OperatorTotal
from hetspec.telemetry.profiler import Profiler, Reading
from hetspec.telemetry.tracing import Traces
from hetspec.telemetry.unit_metrics import UnitMetrics
from hetspec.v1 import common_pb2

Item = TypeVar("Item")
Result = TypeVar("Result")
_Context = grpc.aio.ServicerContext[Any, Any]


@dataclass(frozen=True, slots=True)
class LoadedUnit(Generic[Item, Result]):
    """engine: does the tasks. describe: its description, `credits` and `load` still to be set. close: frees the rest.

    operators: what the native passes came to so far, operator by operator.
    """

    engine: UnitEngine[Item, Result]
    describe: Callable[[], Any]
    close: Callable[[], None]
    operators: Callable[[], Sequence[OperatorTotal]] = tuple


@dataclass(frozen=True, slots=True)
class Offer(Generic[Item, Result]):
    """A contract and what loads an engine that keeps it, which may take its time and raise StartError and the like."""

    contract: Contract[Item, Result]
    load: Callable[[], LoadedUnit[Item, Result]]


class UnitService(Generic[Item, Result]):
    """`hetspec.rpc.server.Service` for a unit."""

    def __init__(
        self,
        contract: Contract[Item, Result],
        load: Callable[[], LoadedUnit[Item, Result]],
        traces: Callable[[], Traces | None] = lambda: None,
        beside: Sequence[Offer[Any, Any]] = (),
    ) -> None:
        """traces: opens what spans go to; may raise TracesError. beside: what is offered on the same engine thread, so
        that one task of all runs at a time; loaded in this order."""
        self.name = contract.unit
        self._servicers = [_Servicer(offer) for offer in (Offer(contract, load), *beside)]
        self.grpc_names: tuple[str, ...] = tuple(servicer.contract.service for servicer in self._servicers)
        self.metrics = UnitMetrics(self.name)
        self.registry = self.metrics.registry
        self.profiler = Profiler(self.registry, self._operators, self._between_tasks)
        self._open_traces = traces
        self._traces: Traces | None = None
        self._thread = EngineThread(self.name)
        self._loading: Future[None] | None = None
        self._queue: WorkQueue | None = None

    def register(self, server: grpc.aio.Server) -> None:
        for servicer in self._servicers:
            servicer.contract.add_servicer(servicer, server)

    async def start(self) -> None:
        """Loads on the engine thread, so that health answers meanwhile."""
        try:
            self._traces = self._open_traces()
        except TracesError as error:
            raise StartError(str(error)) from error
        self._loading = self._thread.call(self._load)
        try:
            await asyncio.wrap_future(self._loading)
        except (WeightsError, SelfCheckError, ValueError) as error:
            raise StartError(str(error)) from error
        queue = WorkQueue(self.name, self._thread, metrics=self.metrics, log=self.profiler.tasks, traces=self._traces)
        self.metrics.watch_units({servicer.contract.unit: servicer.loaded.describe for servicer in self._servicers})
        for servicer in self._servicers:
            servicer.queue = queue
            identity = servicer.loaded.describe().identity
            log_event("loaded", model=identity.model, precision=identity.precision, threads=identity.threads)
        self._queue = queue

    async def drain(self) -> None:
        if self._queue is not None:
            await self._queue.drain()

    async def close(self) -> None:
        if self._loading is not None and not self._loading.done():
            return  # told to stop while it waits for weights: the thread ends with the process
        await asyncio.to_thread(self._thread.close)
        if self._traces is not None:
            await asyncio.to_thread(self._traces.close)
        for servicer in self._servicers:
            if servicer.is_loaded:
                servicer.loaded.close()

    def _load(self) -> None:
        for servicer in self._servicers:
            servicer.load()

    def _operators(self) -> Sequence[OperatorTotal]:
        return [total for each in self._servicers if each.is_loaded for total in each.loaded.operators()]

    async def _between_tasks(self, read: Callable[[], Reading]) -> Reading:
        return await asyncio.wrap_future(self._thread.call(read, urgent=True))


class _Servicer:
    """Of one contract. The server lets nothing through before it is loaded and has its queue."""

    loaded: LoadedUnit[Any, Any]
    queue: WorkQueue

    def __init__(self, offer: Offer[Any, Any]) -> None:
        self.contract = offer.contract
        self._load = offer.load
        self.is_loaded = False

    def load(self) -> None:
        self.loaded = self._load()
        self.is_loaded = True

    async def Describe(self, _request: common_pb2.DescribeRequest, _context: _Context) -> Any:
        description = self.loaded.describe()
        description.credits = self.queue.credits
        description.load.CopyFrom(self.queue.load())
        return description

    async def Work(self, _requests: AsyncIterator[Any], context: _Context) -> None:
        await self.queue.serve(self.contract, self.loaded.engine, context)


def new_identity(
    unit: str, source: WeightSource | None, precision: str, digest: str, threads: int
) -> common_pb2.UnitIdentity:
    return common_pb2.UnitIdentity(
        unit=unit,
        model=source.manifest.config.name if source else "",
        fingerprint=source.manifest.fingerprint if source else "",
        precision=precision,
        digest=digest,
        threads=threads,
        instance=uuid.uuid4().hex,
    )


def weights_check(source: WeightSource) -> Callable[[], None]:
    """Raises UnitError once the lease has been given up."""

    def check() -> None:
        try:
            source.check()
        except WeightsError as error:
            raise UnitError(ErrorCode.WEIGHTS_UNAVAILABLE, str(error)) from error

    return check
