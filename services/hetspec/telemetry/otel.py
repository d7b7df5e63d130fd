"""Traces by OpenTelemetry's SDK. Imported only where traces are on."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from hetspec.telemetry.task_record import OK, TaskRecord
from hetspec.telemetry.tracing import Attributes

_TRACEPARENT = "traceparent"
_propagator = TraceContextTextMapPropagator()


class OtelSpan:
    """hetspec.telemetry.tracing.Span"""

    __slots__ = ("_inner", "_tracer")

    def __init__(self, tracer: trace.Tracer, inner: trace.Span) -> None:
        self._tracer = tracer
        self._inner = inner

    @property
    def traceparent(self) -> str:
        carrier: dict[str, str] = {}
        _propagator.inject(carrier, trace.set_span_in_context(self._inner, Context()))
        return carrier.get(_TRACEPARENT, "")

    def child(self, name: str, attributes: Attributes) -> OtelSpan:
        context = trace.set_span_in_context(self._inner, Context())
        return OtelSpan(self._tracer, self._tracer.start_span(name, context, attributes=attributes))

    def set(self, attributes: Attributes) -> None:
        self._inner.set_attributes(attributes)

    def end(self, error: BaseException | None = None) -> None:
        if error is not None:
            self._inner.set_status(StatusCode.ERROR, f"{type(error).__name__}: {error}")
        self._inner.end()


class OtelTraces:
    """hetspec.telemetry.tracing.Traces, over a provider of its own: several services may run in one process."""

    def __init__(self, service: str, processor: SpanProcessor) -> None:
        named = {"service.name": f"hetspec-{service}", "service.instance.id": uuid.uuid4().hex}
        self._provider = TracerProvider(resource=Resource.create(named))
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("hetspec")

    @classmethod
    def to_collector(cls, service: str) -> OtelTraces:
        """In batches, from a thread, to where the standard OTEL_EXPORTER_OTLP_* variables say."""
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

        return cls(service, BatchSpanProcessor(OTLPSpanExporter()))

    def request(self, name: str, traceparent: str, attributes: Attributes) -> OtelSpan:
        inner = self._tracer.start_span(name, _context(traceparent), SpanKind.SERVER, attributes)
        return OtelSpan(self._tracer, inner)

    def task(self, unit: str, record: TaskRecord, parents: Sequence[str], pass_id: str, end_ns: int) -> None:
        start_ns = end_ns - record.compute_ns
        arrival_ns = start_ns - record.queue_ns
        attributes = _attributes(record, pass_id)
        for parent in parents:
            if not parent:
                continue
            name = f"{unit} {record.kind}"
            task = self._tracer.start_span(name, _context(parent), SpanKind.SERVER, attributes, start_time=arrival_ns)
            inside = trace.set_span_in_context(task, Context())
            self._tracer.start_span("queue", inside, start_time=arrival_ns).end(start_ns)
            self._tracer.start_span("compute", inside, start_time=start_ns).end(end_ns)
            if record.outcome != OK:
                task.set_status(StatusCode.ERROR, record.outcome)
            task.end(end_ns)

    def close(self) -> None:
        self._provider.shutdown()


def _context(traceparent: str) -> Context:
    return _propagator.extract({_TRACEPARENT: traceparent}, Context())


def _attributes(record: TaskRecord, pass_id: str) -> Attributes:
    """pass_id, unique in the service's instance, is equal in the spans of all requests that shared the pass."""
    return {
        "hetspec.pass": pass_id,
        "hetspec.items": record.items,
        "hetspec.rows": record.rows,
        "hetspec.outcome": record.outcome,
        "hetspec.weight_bytes_read": record.trace.weight_bytes_read,
    }
