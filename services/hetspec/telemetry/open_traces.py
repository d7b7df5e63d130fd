"""Where a service's spans go, as its settings say; OpenTelemetry is imported only where they go anywhere."""

from __future__ import annotations

from hetspec.telemetry.tracing import Traces


class TracesError(Exception):
    """Traces are asked for and cannot be had."""


def open_traces(service: str, wanted: bool) -> Traces | None:
    """Raises TracesError."""
    if not wanted:
        return None
    try:
        from hetspec.telemetry.otel import OtelTraces
    except ImportError as error:
        raise TracesError(f"HETSPEC_TRACES: needs the packages of the extra `telemetry`: {error}") from error
    return OtelTraces.to_collector(service)
