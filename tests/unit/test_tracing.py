"""Spans found by context, and what happens where OpenTelemetry is not installed."""

from __future__ import annotations

import asyncio
import sys

import pytest

from hetspec.telemetry.open_traces import TracesError, open_traces
from hetspec.telemetry.tracing import Attributes, annotate, request_span, span, traceparent


class Noted:
    """A span that notes what becomes of it and of those below."""

    def __init__(self, name: str, notes: list[str]) -> None:
        self.name = name
        self.notes = notes
        self.attributes: dict[str, object] = {}

    @property
    def traceparent(self) -> str:
        return self.name

    def child(self, name: str, attributes: Attributes) -> Noted:
        return Noted(f"{self.name}/{name}", self.notes)

    def set(self, attributes: Attributes) -> None:
        self.attributes.update(attributes)

    def end(self, error: BaseException | None = None) -> None:
        self.notes.append(self.name if error is None else f"{self.name}: {error}")


async def test_tasks_started_inside_a_span_work_below_it_side_by_side() -> None:
    first = Noted("r", [])

    async def step(name: str) -> str:
        with span(name):
            await asyncio.sleep(0)
            return traceparent()

    with request_span(first):
        with span("round"):
            found = await asyncio.gather(step("a"), step("b"))
        assert traceparent() == "r"
        annotate(status=200)
    assert found == ["r/round/a", "r/round/b"]
    assert first.notes == ["r/round/a", "r/round/b", "r/round", "r"]
    assert first.attributes == {"status": 200}
    assert traceparent() == ""


def test_span_that_an_error_leaves_tells_it() -> None:
    first = Noted("r", [])
    with pytest.raises(ValueError, match="bad"), request_span(first), span("a"):
        raise ValueError("bad")
    assert first.notes == ["r/a: bad", "r: bad"]


def test_traces_that_are_not_wanted_are_none() -> None:
    assert open_traces("verifier", wanted=False) is None


def test_traces_without_the_packages_are_refused_with_a_line_that_names_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "hetspec.telemetry.otel", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(TracesError, match="HETSPEC_TRACES: needs the packages of the extra `telemetry`"):
        open_traces("verifier", wanted=True)
