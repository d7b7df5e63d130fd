"""Traces of real processes, sent to a collector by the standard variables."""

from __future__ import annotations

from typing import Any

import pytest

from tests.observe.spans import SentSpan, SpanCollector
from tests.system import until

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_every_request_is_one_tree_with_every_unit_in_it(
    collector: SpanCollector, answers: list[dict[str, Any]]
) -> None:
    for answer in answers:
        request, told = answer["request"], answer["hetspec"]
        await until(lambda request=request, told=told: is_whole(collector.trace_of(request), told), 30)
        spans = collector.trace_of(request)
        by_id = {each.pb.span_id: each for each in spans}
        roots = [each for each in spans if not each.pb.parent_span_id]
        assert [each.pb.name for each in roots] == ["POST /v1/completions"]
        for each in spans:
            if each.pb.parent_span_id:
                parent = by_id[each.pb.parent_span_id].pb
                assert parent.start_time_unix_nano <= each.pb.start_time_unix_nano
                assert each.pb.end_time_unix_nano <= parent.end_time_unix_nano
        units = {"hetspec-orchestrator", "hetspec-verifier", "hetspec-sampler"}
        assert {each.service for each in spans} == units | ({"hetspec-drafter"} if told["mode"] != "plain" else set())


def is_whole(spans: list[SentSpan], told: dict[str, Any]) -> bool:
    """Each walk's span has come from both sides, and the request's own."""
    names = [each.pb.name for each in spans]
    return names.count("round") == names.count("sampler walk") == told["rounds"] and "POST /v1/completions" in names
