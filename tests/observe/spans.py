"""A collector of spans, as OTLP has it: the real contract, over gRPC."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc.aio
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as pb
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc


@dataclass(frozen=True)
class SentSpan:
    service: str
    pb: Any
    attributes: dict[str, Any]


@dataclass
class SpanCollector(trace_service_pb2_grpc.TraceServiceServicer):
    address: str = ""
    spans: list[SentSpan] = field(default_factory=list)

    async def Export(self, request: pb.ExportTraceServiceRequest, context: Any) -> pb.ExportTraceServiceResponse:
        for resource in request.resource_spans:
            service = _attributes(resource.resource.attributes)["service.name"]
            for scope in resource.scope_spans:
                self.spans += [SentSpan(service, span, _attributes(span.attributes)) for span in scope.spans]
        return pb.ExportTraceServiceResponse()

    def trace_of(self, request_id: str) -> list[SentSpan]:
        """All spans of one request."""
        ids = {each.pb.trace_id for each in self.spans if each.attributes.get("hetspec.request_id") == request_id}
        return [each for each in self.spans if each.pb.trace_id in ids]


@asynccontextmanager
async def collecting() -> AsyncIterator[SpanCollector]:
    collector = SpanCollector()
    server = grpc.aio.server()
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(collector, server)
    collector.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    try:
        yield collector
    finally:
        await server.stop(None)


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}
