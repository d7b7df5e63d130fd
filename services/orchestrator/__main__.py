"""python -m orchestrator: serves HTTP until SIGTERM, then drains."""

from __future__ import annotations

import socket
import sys
import time
from types import FrameType

import uvicorn

from hetspec.rpc.logs import log_event, set_up_logging
from hetspec.rpc.settings import read_settings
from orchestrator.api.admission import Admission
from orchestrator.api.app import create_app
from orchestrator.config import OrchestratorSettings
from orchestrator.engine.engine import Engine

_CLOSE_S = 5  # for connections to end after the drain


class DrainingServer(uvicorn.Server):
    """On SIGTERM or SIGINT running requests go on for a while, new ones get 503. A second signal ends it at once."""

    def __init__(self, config: uvicorn.Config, admission: Admission, drain_s: float) -> None:
        super().__init__(config)
        self._admission = admission
        self._drain_s = drain_s
        self._drained_by = float("inf")

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.should_exit = self._admission.draining
        self._admission.draining = True
        self._drained_by = time.monotonic() + self._drain_s

    async def on_tick(self, counter: int) -> bool:
        if self._admission.draining and (self._admission.idle or time.monotonic() >= self._drained_by):
            self.should_exit = True
        return await super().on_tick(counter)


def main() -> int:
    settings = read_settings("orchestrator", OrchestratorSettings)
    try:
        listener = listen(settings.host, settings.port)
    except OSError as error:
        print(f"orchestrator: cannot listen on {settings.host}:{settings.port}: {error.strerror}", file=sys.stderr)
        return 2
    set_up_logging("orchestrator", settings.log_level)
    admission = Admission(settings.max_running, settings.max_queued)
    app = create_app(Engine(settings), settings, admission)
    config = uvicorn.Config(app, log_config=None, access_log=False, timeout_graceful_shutdown=_CLOSE_S)
    log_event("listening", host=settings.host, port=listener.getsockname()[1])
    DrainingServer(config, admission, settings.drain_s).run(sockets=[listener])
    return 0


def listen(host: str, port: int) -> socket.socket:
    """Raises OSError."""
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    return socket.create_server(address, family=family)


if __name__ == "__main__":
    sys.exit(main())
