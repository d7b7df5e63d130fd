"""One span tree a request, over real links, read by the SDK's in-memory exporter: one a service."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import httpx
import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from hetspec.telemetry.otel import OtelTraces
from hetspec.telemetry.tracing import span, traceparent
from orchestrator.api.admission import Admission
from orchestrator.api.app import create_app
from orchestrator.config import OrchestratorSettings
from tests.fakes import FakeUnit, World

BODY = {"prompt": list(range(2, 12)) * 4, "max_tokens": 12, "hetspec": {"mode": "tree"}}  # more than a chunk
TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
UNITS = {"draft": "drafter", "prefill": "verifier", "verify": "verifier", "walk": "sampler"}


class Collector:
    """Every service's spans, by its name."""

    def __init__(self) -> None:
        self.exporters: dict[str, InMemorySpanExporter] = {}

    def traces(self, service: str) -> OtelTraces:
        exporter = self.exporters[service] = InMemorySpanExporter()
        return OtelTraces(service, SimpleSpanProcessor(exporter))

    @property
    def spans(self) -> list[ReadableSpan]:
        return [span for exporter in self.exporters.values() for span in exporter.get_finished_spans()]


@asynccontextmanager
async def serving(world: World, collector: Collector | None) -> AsyncIterator[httpx.AsyncClient]:
    async with world:
        if collector is not None:
            for unit in world.units:
                trace(unit, collector)
        traces = collector.traces("orchestrator") if collector else None
        app = create_app(world.engine, OrchestratorSettings(), Admission(8, 8), traces=traces)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test", timeout=60) as client:
            yield client


def trace(unit: FakeUnit, collector: Collector) -> None:
    unit.queue.traces = collector.traces(unit.contract.unit)


def children(spans: Sequence[ReadableSpan], parent: ReadableSpan) -> list[ReadableSpan]:
    found = [span for span in spans if span.parent is not None and span.parent.span_id == parent.context.span_id]
    return sorted(found, key=lambda span: span.start_time)


def root(spans: Sequence[ReadableSpan]) -> ReadableSpan:
    (found,) = (span for span in spans if span.parent is None)
    return found


def assert_nests(spans: Sequence[ReadableSpan], parent: ReadableSpan) -> int:
    """Returns how many there are."""
    count = 1
    for child in children(spans, parent):
        assert parent.start_time <= child.start_time <= child.end_time <= parent.end_time
        assert child.context.trace_id == parent.context.trace_id
        count += assert_nests(spans, child)
    return count


@pytest.mark.parametrize("stream", [False, True])
async def test_request_is_one_tree_whose_spans_lie_within_their_parents(stream: bool) -> None:
    collector = Collector()
    async with serving(World(), collector) as client:
        answer = await client.post("/v1/completions", json=BODY | {"stream": stream})
    spans = collector.spans
    first = root(spans)
    assert first.name == "POST /v1/completions"
    assert first.attributes["hetspec.request_id"] == answer.headers["x-request-id"]
    assert first.attributes["http.response.status_code"] == 200
    assert assert_nests(spans, first) == len(spans)  # none is left outside


async def test_tree_tells_admission_then_each_round_then_each_units_queue_and_compute() -> None:
    collector = Collector()
    async with serving(World(), collector) as client:
        told = (await client.post("/v1/completions", json=BODY)).json()["hetspec"]
    spans = collector.spans
    admission, *rounds = children(spans, root(spans))
    assert admission.name == "admission"
    assert [each.name for each in rounds] == ["round"] * told["rounds"]
    for number, each in enumerate(rounds):
        steps = [step.name for step in children(spans, each)]
        assert set(steps) - {"draft"} == {"verify", "walk"} | ({"prefill"} if number == 0 else set())
        assert "draft" in steps or number == told["rounds"] - 1  # one token that is left needs none
        for step in children(spans, each):
            (task,) = children(spans, step)
            assert task.resource.attributes["service.name"] == f"hetspec-{UNITS[step.name]}"
            queue, compute = children(spans, task)
            assert (queue.name, compute.name) == ("queue", "compute")
            assert queue.start_time == task.start_time
            assert queue.end_time == compute.start_time
            assert compute.end_time == task.end_time


async def test_client_that_sends_a_traceparent_sees_its_trace_go_on() -> None:
    collector = Collector()
    async with serving(World(), collector) as client:
        header = {"traceparent": f"00-{TRACE_ID}-b7ad6b7169203331-01"}
        await client.post("/v1/completions", json=BODY, headers=header)
    assert {format(span.context.trace_id, "032x") for span in collector.spans} == {TRACE_ID}
    assert {format(each.parent.span_id, "016x") for each in collector.spans if each.name.startswith("POST")} == {
        "b7ad6b7169203331"
    }


async def test_trace_that_the_client_does_not_sample_leaves_no_span_anywhere() -> None:
    collector = Collector()
    async with serving(World(), collector) as client:
        header = {"traceparent": f"00-{TRACE_ID}-b7ad6b7169203331-00"}
        assert (await client.post("/v1/completions", json=BODY, headers=header)).status_code == 200
    assert collector.spans == []


async def test_requests_that_share_a_pass_have_a_span_of_it_each_in_their_own_trace() -> None:
    collector = Collector()
    world = World()
    async with serving(world, collector) as client:
        await client.post("/v1/completions", json=BODY | {"n": 4, "seed": 1})
    shared: dict[object, list[ReadableSpan]] = {}
    for each in collector.spans:
        if "hetspec.pass" in (each.attributes or {}):
            shared.setdefault((each.resource.attributes["service.name"], each.attributes["hetspec.pass"]), []).append(
                each
            )
    assert max(map(len, shared.values())) > 1
    for passes in shared.values():
        assert {(each.start_time, each.end_time, each.attributes["hetspec.items"]) for each in passes} == {
            (passes[0].start_time, passes[0].end_time, len(passes))
        }
        assert len({each.parent.span_id for each in passes}) == len(passes)


async def test_refused_request_is_a_span_with_its_status() -> None:
    collector = Collector()
    async with serving(World(), collector) as client:
        await client.post("/v1/completions", json=BODY | {"max_tokens": -1})
    (only,) = collector.spans
    assert only.attributes["http.response.status_code"] == 400


async def test_nothing_is_traced_or_sent_along_where_traces_are_off() -> None:
    collector = Collector()
    world = World()
    async with serving(world, None) as client:
        for unit in world.units:  # the units would trace, if they were told of one
            trace(unit, collector)
        await client.post("/v1/completions", json=BODY)
    assert collector.spans == []


async def test_span_outside_of_a_request_is_none() -> None:
    with span("verify"):
        assert traceparent() == ""


def test_services_do_not_import_the_sdk_while_traces_are_off() -> None:
    """The API alone is imported by FastAPI, where it is installed."""
    services = ("orchestrator", "verifier", "drafter", "sampler", "weight_store")
    program = (
        f"import sys, {', '.join(f'{service}.__main__' for service in services)};"
        "sys.exit(any(name.startswith('opentelemetry.sdk') for name in sys.modules))"
    )
    subprocess.run([sys.executable, "-c", program], check=True, env={"PYTHONPATH": "services", "PATH": "/usr/bin"})
