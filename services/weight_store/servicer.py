"""The weight store's contract (weight_store.proto) over a Store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, NoReturn

import grpc
import grpc.aio

from hetspec.model.checkpoint import CheckpointError
from hetspec.model.pack import PRECISIONS
from hetspec.rpc.logs import log_event
from hetspec.rpc.server import StartError
from hetspec.v1 import weight_store_pb2 as pb
from hetspec.v1 import weight_store_pb2_grpc
from weight_store.store import ChangedError, LeaseEndedError, PackLease, Source, Store

CHUNK_BYTES = 2 * 1024 * 1024
_Context = grpc.aio.ServicerContext[Any, Any]
_Code = grpc.StatusCode


class WeightStoreServicer(weight_store_pb2_grpc.WeightStoreServicer):
    """check_interval_s: how often the files under a lease are looked at."""

    def __init__(self, store: Store, check_interval_s: float = 2.0) -> None:
        self._store = store
        self._check_interval_s = check_interval_s
        self.stopping = asyncio.Event()

    async def GetManifest(self, request: pb.GetManifestRequest, context: _Context) -> pb.Manifest:
        source = await self._source(request.role, context)
        try:
            await asyncio.to_thread(source.check)
        except ChangedError as error:
            await _abort(context, _Code.FAILED_PRECONDITION, error)
        return source.manifest.to_pb()

    async def Lease(self, request: pb.LeaseRequest, context: _Context) -> AsyncIterator[pb.LeaseGrant]:
        lease = await self._grant(request, context)
        try:
            path, pack_hash = str(lease.pack.path), lease.pack.hash
            yield pb.LeaseGrant(lease=lease.id, path=path, pack_hash=pack_hash, bytes=lease.size_bytes)
            while not await self._stops_within(self._check_interval_s):
                await asyncio.to_thread(lease.check)
            await _abort(context, _Code.UNAVAILABLE, "the weight store is stopping")
        except ChangedError as error:
            log_event("lease ended", reason=str(error))
            await _abort(context, _Code.FAILED_PRECONDITION, error)
        finally:
            self._store.release(lease)

    async def Read(self, request: pb.ReadRequest, context: _Context) -> AsyncIterator[pb.Chunk]:
        lease = self._store.leases.get(request.lease)
        if lease is None:
            await _abort(context, _Code.NOT_FOUND, f"lease {request.lease!r:.60} is not in force")
        end = request.offset + request.length
        if end > lease.size_bytes:
            problem = f"offset {request.offset} + length {request.length} = {end}, must be at most {lease.size_bytes}"
            await _abort(context, _Code.OUT_OF_RANGE, problem)
        try:
            for offset in range(request.offset, end, CHUNK_BYTES):
                length = min(CHUNK_BYTES, end - offset)
                yield pb.Chunk(data=await asyncio.to_thread(lease.read, offset, length))
        except LeaseEndedError as error:
            await _abort(context, _Code.NOT_FOUND, error)
        except (ChangedError, OSError) as error:
            await _abort(context, _Code.FAILED_PRECONDITION, error)

    async def _source(self, role: str, context: _Context) -> Source:
        if role not in self._store.sources:
            served = ", ".join(self._store.sources)
            await _abort(context, _Code.NOT_FOUND, f"role {role!r:.60} is not served, only {served}")
        return self._store.sources[role]

    async def _grant(self, request: pb.LeaseRequest, context: _Context) -> PackLease:
        await self._source(request.role, context)
        if request.precision not in PRECISIONS:
            problem = f"precision {request.precision!r:.60}, must be one of {', '.join(PRECISIONS)}"
            await _abort(context, _Code.INVALID_ARGUMENT, problem)
        try:
            return await asyncio.to_thread(self._store.lease, request.role, request.precision)
        except (ChangedError, CheckpointError) as error:
            await _abort(context, _Code.FAILED_PRECONDITION, error)
        except OSError as error:
            await _abort(context, _Code.RESOURCE_EXHAUSTED, f"the pack cannot be made: {error}")

    async def _stops_within(self, seconds: float) -> bool:
        try:
            await asyncio.wait_for(self.stopping.wait(), seconds)
        except TimeoutError:
            return False
        return True


async def _abort(context: _Context, code: grpc.StatusCode, problem: object) -> NoReturn:
    await context.abort(code, str(problem))
    raise AssertionError("abort returned")


class WeightStoreService:
    """The weight store as a process serves it (hetspec.rpc.server.Service)."""

    name = "weight_store"
    grpc_names: tuple[str, ...] = ("hetspec.v1.WeightStore",)

    def __init__(self, store: Store, check_interval_s: float = 2.0) -> None:
        self._store = store
        self._servicer = WeightStoreServicer(store, check_interval_s)

    def register(self, server: grpc.aio.Server) -> None:
        weight_store_pb2_grpc.add_WeightStoreServicer_to_server(self._servicer, server)

    async def start(self) -> None:
        try:
            await asyncio.to_thread(self._store.open)
        except (CheckpointError, OSError) as error:
            raise StartError(str(error)) from error
        for role, source in self._store.sources.items():
            log_event("opened", role=role, model=source.manifest.config.name, fingerprint=source.manifest.fingerprint)

    async def drain(self) -> None:
        self._servicer.stopping.set()

    async def close(self) -> None:
        for lease in list(self._store.leases.values()):
            self._store.release(lease)
