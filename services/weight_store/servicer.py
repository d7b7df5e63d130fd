"""The weight store's contract (weight_store.proto) over a Store."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from typing import Any, NoReturn

import grpc
import grpc.aio

from hetspec.model.checkpoint import CheckpointError
from hetspec.model.pack import PRECISIONS
from hetspec.rpc.logs import log_event
from hetspec.rpc.server import StartError
from hetspec.telemetry.profiler import Profiler
from hetspec.v1 import common_pb2, weight_store_pb2_grpc
from hetspec.v1 import weight_store_pb2 as pb
from weight_store.metrics import StoreMetrics
from weight_store.store import ChangedError, LeaseEndedError, PackLease, Source, Store

CHUNK_BYTES = 2 * 1024 * 1024
_Context = grpc.aio.ServicerContext[Any, Any]
_Code = grpc.StatusCode


class WeightStoreServicer(weight_store_pb2_grpc.WeightStoreServicer):
    """check_interval_s: how often the files under a lease are looked at."""

    def __init__(self, store: Store, metrics: StoreMetrics, check_interval_s: float = 2.0) -> None:
        self._store = store
        self._metrics = metrics
        self._check_interval_s = check_interval_s
        self._instance = uuid.uuid4().hex
        self.stopping = asyncio.Event()

    async def GetManifest(self, request: pb.GetManifestRequest, context: _Context) -> pb.Manifest:
        source = await self._source(request.role, context)
        try:
            await asyncio.to_thread(source.check)
        except ChangedError as error:
            await self._abort(context, _Code.FAILED_PRECONDITION, error)
        return source.manifest.to_pb()

    async def Lease(self, request: pb.LeaseRequest, context: _Context) -> AsyncIterator[pb.LeaseGrant]:
        lease = await self._grant(request, context)
        try:
            path, pack_hash = str(lease.pack.path), lease.pack.hash
            yield pb.LeaseGrant(lease=lease.id, path=path, pack_hash=pack_hash, bytes=lease.size_bytes)
            while not await self._stops_within(self._check_interval_s):
                await asyncio.to_thread(lease.check)
            await self._abort(context, _Code.UNAVAILABLE, "the weight store is stopping")
        except ChangedError as error:
            log_event("lease ended", reason=str(error))
            await self._abort(context, _Code.FAILED_PRECONDITION, error)
        finally:
            self._store.release(lease)

    async def Read(self, request: pb.ReadRequest, context: _Context) -> AsyncIterator[pb.Chunk]:
        lease = self._store.leases.get(request.lease)
        if lease is None:
            await self._abort(context, _Code.NOT_FOUND, f"lease {request.lease!r:.60} is not in force")
        end = request.offset + request.length
        if end > lease.size_bytes:
            problem = f"offset {request.offset} + length {request.length} = {end}, must be at most {lease.size_bytes}"
            await self._abort(context, _Code.OUT_OF_RANGE, problem)
        try:
            for offset in range(request.offset, end, CHUNK_BYTES):
                length = min(CHUNK_BYTES, end - offset)
                with self._metrics.read_seconds.time():
                    data = await asyncio.to_thread(lease.read, offset, length)
                yield pb.Chunk(data=data)
                self._metrics.served_bytes.inc(length)
        except LeaseEndedError as error:
            await self._abort(context, _Code.NOT_FOUND, error)
        except (ChangedError, OSError) as error:
            await self._abort(context, _Code.FAILED_PRECONDITION, error)

    async def GetEarlyExit(self, _request: pb.GetEarlyExitRequest, context: _Context) -> pb.EarlyExitPredictor:
        if self._store.early_exit is None:
            await self._abort(context, _Code.NOT_FOUND, "no early-exit predictor is served")
        return self._store.early_exit.to_pb()

    async def GetAcceptance(self, _request: pb.GetAcceptanceRequest, context: _Context) -> pb.AcceptanceHead:
        if self._store.acceptance is None:
            await self._abort(context, _Code.NOT_FOUND, "no acceptance head is served")
        return self._store.acceptance.to_pb()

    async def Describe(self, _request: common_pb2.DescribeRequest, _context: _Context) -> pb.WeightStoreDescription:
        target = self._store.sources["target"].manifest
        return pb.WeightStoreDescription(
            identity=common_pb2.UnitIdentity(
                unit="weight_store",
                model=target.config.name,
                fingerprint=target.fingerprint,
                instance=self._instance,
            ),
            leases=len(self._store.leases),
            served_bytes=self._metrics.counted_bytes(),
            load=self._metrics.load(),
        )

    async def _source(self, role: str, context: _Context) -> Source:
        if role not in self._store.sources:
            served = ", ".join(self._store.sources)
            await self._abort(context, _Code.NOT_FOUND, f"role {role!r:.60} is not served, only {served}")
        return self._store.sources[role]

    async def _grant(self, request: pb.LeaseRequest, context: _Context) -> PackLease:
        await self._source(request.role, context)
        if request.precision not in PRECISIONS:
            problem = f"precision {request.precision!r:.60}, must be one of {', '.join(PRECISIONS)}"
            await self._abort(context, _Code.INVALID_ARGUMENT, problem)
        try:
            with self._metrics.pack_seconds.time():
                lease = await asyncio.to_thread(self._store.lease, request.role, request.precision)
        except (ChangedError, CheckpointError) as error:
            await self._abort(context, _Code.FAILED_PRECONDITION, error)
        except OSError as error:
            await self._abort(context, _Code.RESOURCE_EXHAUSTED, f"the pack cannot be made: {error}")
        self._metrics.granted.labels(request.role, request.precision).inc()
        return lease

    async def _stops_within(self, seconds: float) -> bool:
        try:
            await asyncio.wait_for(self.stopping.wait(), seconds)
        except TimeoutError:
            return False
        return True

    async def _abort(self, context: _Context, code: grpc.StatusCode, problem: object) -> NoReturn:
        self._metrics.refused.labels(code.name.lower()).inc()
        await context.abort(code, str(problem))
        raise AssertionError("abort returned")


class WeightStoreService:
    """The weight store as a process serves it (hetspec.rpc.server.Service)."""

    name = "weight_store"
    grpc_names: tuple[str, ...] = ("hetspec.v1.WeightStore",)

    def __init__(self, store: Store, check_interval_s: float = 2.0) -> None:
        self._store = store
        self._metrics = StoreMetrics(leases=lambda: len(store.leases))
        self.registry = self._metrics.registry
        self.profiler = Profiler(self.registry)
        self._servicer = WeightStoreServicer(store, self._metrics, check_interval_s)

    def register(self, server: grpc.aio.Server) -> None:
        weight_store_pb2_grpc.add_WeightStoreServicer_to_server(self._servicer, server)

    async def start(self) -> None:
        try:
            await asyncio.to_thread(self._store.open)
        except (CheckpointError, OSError) as error:
            raise StartError(str(error)) from error
        for role, source in self._store.sources.items():
            model, fingerprint = source.manifest.config.name, source.manifest.fingerprint
            self._metrics.checkpoint.labels(role, model, fingerprint).set(1)
            log_event("opened", role=role, model=model, fingerprint=fingerprint)
        if (early_exit := self._store.early_exit) is not None:
            log_event("opened", role="early exit", layer=early_exit.config.layer, recall=early_exit.config.recall)
        if (acceptance := self._store.acceptance) is not None:
            log_event("opened", role="acceptance head", blocks=acceptance.config.blocks)

    async def drain(self) -> None:
        self._servicer.stopping.set()

    async def close(self) -> None:
        for lease in list(self._store.leases.values()):
            self._store.release(lease)
