"""python -m orchestrator: serves HTTP until SIGTERM, then drains."""

from __future__ import annotations

import socket
import sys
import time
from types import FrameType

import uvicorn
from starlette.types import ASGIApp

from hetspec.rpc.logs import log_event, set_up_logging
from hetspec.rpc.settings import read_settings
from hetspec.telemetry.exposition import MetricsPortError, open_metrics
from hetspec.telemetry.open_traces import TracesError, open_traces
from hetspec.telemetry.registry import new_registry
from orchestrator.api.admission import Admission
from orchestrator.api.app import create_app
from orchestrator.api.http_protocol import JsonErrorProtocol
from orchestrator.certificate import ServerCertificate
from orchestrator.config import OrchestratorSettings
from orchestrator.engine.engine import Engine
from orchestrator.engine.settings import EngineSettings
from orchestrator.units.settings import FleetSettings, PrefixSettings

_CLOSE_S = 5  # for connections to end after the drain
_TICKS_A_SECOND = 10  # uvicorn's


class DrainingServer(uvicorn.Server):
    """On SIGTERM or SIGINT running requests go on for a while, new ones get 503, and so does what is left after that.

    A second signal ends it at once.
    """

    def __init__(
        self, config: uvicorn.Config, admission: Admission, drain_s: float, certificate: ServerCertificate | None = None
    ) -> None:
        super().__init__(config)
        self._admission = admission
        self._drain_s = drain_s
        self._certificate = certificate
        self._drained_by = float("inf")

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.should_exit = self._admission.draining
        self._admission.draining = True
        self._drained_by = time.monotonic() + self._drain_s

    async def on_tick(self, counter: int) -> bool:
        if self._admission.draining and (self._admission.idle or time.monotonic() >= self._drained_by):
            self._admission.close()
            self.should_exit = True
        if self._certificate is not None and self.config.ssl is not None and counter % _TICKS_A_SECOND == 0:
            self._certificate.renew(self.config.ssl)
        return await super().on_tick(counter)


def main() -> int:
    settings = read_settings("orchestrator", OrchestratorSettings)
    try:
        listener = listen(settings.host, settings.port)
    except OSError as error:
        print(f"orchestrator: cannot listen on {settings.host}:{settings.port}: {error.strerror}", file=sys.stderr)
        return 2
    registry = new_registry()
    try:
        metrics_port = open_metrics(registry, settings.host, settings.metrics_port)
        traces = open_traces("orchestrator", settings.traces)
    except (MetricsPortError, TracesError) as error:
        print(f"orchestrator: {error}", file=sys.stderr)
        return 2
    set_up_logging("orchestrator", settings.log_level)
    admission = Admission(settings.max_running, settings.max_queued)
    prefixes = PrefixSettings(settings.prefix_tokens, settings.prefix_lease_s)
    engine_settings = EngineSettings(
        fleet=FleetSettings(prefixes=prefixes),
        tls=settings.rpc_tls,
        world=settings.world,
        timeline_tasks=settings.timeline_tasks,
    )
    engine = Engine(settings, engine_settings, registry)
    config = server_config(create_app(engine, settings, admission, registry, traces), settings)
    where = {"port": listener.getsockname()[1], "metrics_port": metrics_port.port if metrics_port else None}
    log_event("listening", host=settings.host, **where)
    DrainingServer(config, admission, settings.drain_s, settings.certificate).run(sockets=[listener])
    if traces is not None:
        traces.close()
    return 0


def server_config(app: ASGIApp, settings: OrchestratorSettings) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=JsonErrorProtocol,
        ws="none",
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=_CLOSE_S,
        ssl_certfile=settings.tls_cert,
        ssl_keyfile=settings.tls_key,
    )


def listen(host: str, port: int) -> socket.socket:
    """Raises OSError."""
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    return socket.create_server(address, family=family)


if __name__ == "__main__":
    sys.exit(main())
