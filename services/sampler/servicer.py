"""The sampler's contract (sampler.proto) over its engine, as a process serves it."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from concurrent.futures import Future
from typing import Any

import grpc.aio

from hetspec.model.head import Head
from hetspec.model.weights import WeightsError, WeightSource
from hetspec.rpc.contracts import WALK
from hetspec.rpc.engine_thread import EngineThread
from hetspec.rpc.logs import log_event
from hetspec.rpc.messages import ErrorCode, UnitError, Walk, WalkItem
from hetspec.rpc.server import StartError
from hetspec.rpc.work import WorkQueue
from hetspec.text.vocabulary import Vocabulary
from hetspec.v1 import common_pb2, sampler_pb2, sampler_pb2_grpc
from sampler.config import SamplerSettings
from sampler.engine import MAX_LOGPROBS, SamplerEngine
from sampler.self_check import SelfCheckError, self_check

_Context = grpc.aio.ServicerContext[Any, Any]


class SamplerServicer(sampler_pb2_grpc.SamplerServicer):
    """Answers once `queue` and `description` are set; the server lets no call through before."""

    queue: WorkQueue[WalkItem, Walk]
    description: sampler_pb2.SamplerDescription

    async def Describe(
        self, _request: common_pb2.DescribeRequest, _context: _Context
    ) -> sampler_pb2.SamplerDescription:
        return self.description

    async def Work(  # type: ignore[override]  # reads and writes through the context
        self, _requests: AsyncIterator[sampler_pb2.SamplerRequest], context: _Context
    ) -> None:
        await self.queue.serve(context)


class SamplerService:
    """The sampler as a process serves it (hetspec.rpc.server.Service)."""

    name = "sampler"
    grpc_names: tuple[str, ...] = (WALK.service,)

    def __init__(self, settings: SamplerSettings) -> None:
        self._settings = settings
        self._servicer = SamplerServicer()
        self._thread = EngineThread(self.name)
        self._loading: Future[None] | None = None
        self._source: WeightSource | None = None

    def register(self, server: grpc.aio.Server) -> None:
        sampler_pb2_grpc.add_SamplerServicer_to_server(self._servicer, server)

    async def start(self) -> None:
        self._loading = self._thread.call(self._load)
        try:
            await asyncio.wrap_future(self._loading)
        except (WeightsError, SelfCheckError, ValueError) as error:
            raise StartError(str(error)) from error

    async def drain(self) -> None:
        if hasattr(self._servicer, "queue"):
            await self._servicer.queue.drain()

    async def close(self) -> None:
        if self._loading is not None and not self._loading.done():
            return  # told to stop while it waits for weights: the thread ends with the process
        await asyncio.to_thread(self._thread.close)
        if self._source is not None:
            self._source.close()

    def _load(self) -> None:
        """On the engine thread, so that the event loop answers meanwhile. Compiles every kernel on the way."""
        settings = self._settings
        source = WeightSource.open(settings.weight_store, "target", settings.precision, settings.weights_timeout_s)
        self._source = source
        head = Head(source, threads=settings.threads)
        missing = Vocabulary(source.manifest.text.tokenizer_json).missing(head.vocab_size)
        digest = self_check(head)
        engine = SamplerEngine(head, missing, lambda: _check_weights(source))
        self._servicer.queue = WorkQueue(WALK, engine, self._thread)
        self._servicer.description = self._describe(source, digest)
        log_event("loaded", model=source.manifest.config.name, precision=settings.precision, threads=settings.threads)

    def _describe(self, source: WeightSource, digest: str) -> sampler_pb2.SamplerDescription:
        config = source.manifest.config
        identity = common_pb2.UnitIdentity(
            unit=self.name,
            model=config.name,
            fingerprint=source.manifest.fingerprint,
            precision=self._settings.precision,
            digest=digest,
            threads=self._settings.threads,
            instance=uuid.uuid4().hex,
        )
        return sampler_pb2.SamplerDescription(
            identity=identity,
            hidden_size=config.hidden_size,
            vocab_size=config.vocab_size,
            max_logprobs=MAX_LOGPROBS,
            credits=self._servicer.queue.credits,
        )


def _check_weights(source: WeightSource) -> None:
    try:
        source.check()
    except WeightsError as error:
        raise UnitError(ErrorCode.WEIGHTS_UNAVAILABLE, str(error)) from error
