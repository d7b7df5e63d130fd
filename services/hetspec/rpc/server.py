"""Start-up, health and drain of any service: one process, one port, one event loop."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1._async import HealthServicer
from grpc_reflection.v1alpha import reflection
from prometheus_client import CollectorRegistry

from hetspec.rpc.channel import KeepAlive, server_options
from hetspec.rpc.logs import log_event, set_up_logging
from hetspec.rpc.profiler import PROFILER, ProfilerServicer
from hetspec.rpc.settings import ServiceSettings
from hetspec.rpc.tls import RpcTls
from hetspec.telemetry.exposition import MetricsPort, MetricsPortError, open_metrics
from hetspec.telemetry.profiler import Profiler
from hetspec.v1 import profiler_pb2_grpc

_SERVING = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


class StartError(Exception):
    """The service cannot start; the message is the one line the user reads."""


class PortTakenError(StartError):
    """Somebody listens there already."""


class Service(Protocol):
    """What a process serves.

    `register` adds the servicers and is called first. `start` loads and warms up while the port is open, health says
    NOT_SERVING and calls are answered UNAVAILABLE; blocking work in it belongs in a thread. `drain` returns when
    nothing runs any more, or is cancelled when the time of grace is over; `close` frees the rest. Both may follow a
    `start` that failed.
    """

    name: str  # "verifier"
    grpc_names: tuple[str, ...]  # "hetspec.v1.Verifier"
    registry: CollectorRegistry  # what is served at the metrics port
    profiler: Profiler

    def register(self, server: grpc.aio.Server) -> None: ...

    async def start(self) -> None: ...

    async def drain(self) -> None: ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class ServerSettings:
    host: str = "127.0.0.1"
    port: int = 0  # 0: any free one
    grace_s: float = 10.0  # for what runs, when told to stop
    keep_alive: KeepAlive = KeepAlive()
    metrics_port: int | None = None  # None: not served
    log_level: str = "INFO"
    tls: RpcTls | None = None  # None: whoever reaches the port is served

    @classmethod
    def of(cls, settings: ServiceSettings) -> ServerSettings:
        return cls(
            settings.host,
            settings.port,
            settings.drain_s,
            metrics_port=settings.metrics_port,
            log_level=settings.log_level,
            tls=settings.rpc_tls,
        )


class Server:
    """A service behind its port. `start` returns when it is ready; `stop` when it has drained."""

    def __init__(self, service: Service, settings: ServerSettings) -> None:
        self._service = service
        self._settings = settings
        self._gate = _ReadyGate(service)
        self._health = HealthServicer()
        self._cut = asyncio.Event()
        self._server = grpc.aio.server(interceptors=[self._gate], options=server_options(settings.keep_alive))
        self._metrics: MetricsPort | None = None
        self.port = 0

    @property
    def metrics_port(self) -> int | None:
        """None: not served."""
        return self._metrics.port if self._metrics else None

    async def start(self) -> None:
        await self.listen()
        await self._service.start()
        self._gate.open = True
        await self._set_health(_SERVING)
        log_event("ready", port=self.port, metrics_port=self.metrics_port)

    async def listen(self) -> None:
        """Opens the port: health, reflection, and UNAVAILABLE for the rest."""
        self._service.register(self._server)
        profiler_pb2_grpc.add_ProfilerServicer_to_server(ProfilerServicer(self._service.profiler), self._server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        names = (*self._service.grpc_names, PROFILER, health_pb2.DESCRIPTOR.services_by_name["Health"].full_name)
        reflection.enable_server_reflection((*names, reflection.SERVICE_NAME), self._server)
        await self._set_health(_NOT_SERVING)
        address = f"{self._settings.host}:{self._settings.port}"
        try:
            self.port = self._add_port(address)
        except RuntimeError as error:
            raise PortTakenError(f"cannot listen on {address}: taken, or not an address of this host") from error
        try:
            self._metrics = open_metrics(self._service.registry, self._settings.host, self._settings.metrics_port)
        except MetricsPortError as error:
            raise PortTakenError(str(error)) from error
        await self._server.start()

    def _add_port(self, address: str) -> int:
        tls = self._settings.tls
        if tls is None:
            return self._server.add_insecure_port(address)
        return self._server.add_secure_port(address, tls.server_credentials())

    async def stop(self) -> None:
        """Drains first, for the time of grace at most."""
        await self._set_health(_NOT_SERVING)
        self._gate.open = False
        draining = asyncio.create_task(self._service.drain())
        cut = asyncio.create_task(self._cut.wait())
        await asyncio.wait((draining, cut), timeout=self._settings.grace_s, return_when=asyncio.FIRST_COMPLETED)
        cut.cancel()
        if draining.done():
            draining.result()
        else:
            draining.cancel()
            log_event("grace is over, running work is dropped", grace_s=self._settings.grace_s)
        await self.stop_without_drain()

    def cut_drain(self) -> None:
        """Ends the time of grace."""
        self._cut.set()

    async def stop_without_drain(self) -> None:
        await self._server.stop(grace=0.2)
        await self._service.close()
        if self._metrics is not None:
            await asyncio.to_thread(self._metrics.close)

    async def _set_health(self, status: health_pb2.HealthCheckResponse.ServingStatus.ValueType) -> None:
        for name in ("", *self._service.grpc_names):
            await self._health.set(name, status)


class _ReadyGate(grpc.aio.ServerInterceptor):  # type: ignore[misc,unused-ignore]
    """Lets nothing but health and reflection through until the service is ready, and again when it drains."""

    def __init__(self, service: Service) -> None:
        self.open = False
        self._name = service.name
        self._guarded = tuple(f"/{name}/" for name in (*service.grpc_names, PROFILER))

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        if self.open or not handler_call_details.method.startswith(self._guarded):
            return await continuation(handler_call_details)
        return grpc.stream_stream_rpc_method_handler(self._refuse)  # fits calls of every kind

    async def _refuse(self, _requests: object, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        await context.abort(grpc.StatusCode.UNAVAILABLE, f"{self._name} is not ready")


def run_server(service: Service, settings: ServerSettings) -> int:
    """Serves until SIGTERM or SIGINT, then drains until the next. Returns 0, or 2 with one line on stderr."""
    set_up_logging(service.name, settings.log_level)
    try:
        asyncio.run(_serve(service, settings))
    except StartError as error:
        print(f"{service.name}: {error}", file=sys.stderr)
        return 2
    return 0


async def _serve(service: Service, settings: ServerSettings) -> None:
    stop = asyncio.Event()
    server = Server(service, settings)

    def told_to_end() -> None:
        if stop.is_set():
            server.cut_drain()
        stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told_to_end)
    starting = asyncio.create_task(server.start())
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
    try:
        if starting.done():
            starting.result()  # a StartError ends the process here
            await stopping
            log_event("draining", grace_s=settings.grace_s)
    finally:
        starting.cancel()
        stopping.cancel()
        await server.stop()
    log_event("stopped")
