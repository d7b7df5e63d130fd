"""The port at which Prometheus reads a service's metrics: plain HTTP, /metrics.

In a thread of its own, so that a scrape neither waits for the event loop nor delays what runs there. Kernels run
without the interpreter's lock, so it holds up no pass either.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, start_http_server


class MetricsPortError(Exception):
    """The port cannot be had; the message is one line that names the setting."""


def open_metrics(registry: CollectorRegistry, host: str, port: int | None) -> MetricsPort | None:
    """port: 0 takes any free one, None none. Raises MetricsPortError."""
    if port is None:
        return None
    try:
        return MetricsPort(registry, host, port)
    except OSError as error:
        raise MetricsPortError(f"HETSPEC_METRICS_PORT: cannot listen on {host}:{port}: {error.strerror}") from error


class MetricsPort:
    def __init__(self, registry: CollectorRegistry, host: str, port: int) -> None:
        self._server, self._thread = start_http_server(port, host, registry)
        self.port: int = self._server.server_port

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
