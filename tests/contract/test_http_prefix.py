"""What a client sees of the prefix cache, and how it declines it."""

from __future__ import annotations

import json

import pytest

from orchestrator.engine.request import GenerationRequest
from tests.contract.fake_engine import FakeEngine, FakeGeneration, says

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
HELLO = {"messages": [{"role": "user", "content": "hi"}]}


class CachingEngine(FakeEngine):
    """Its choices took over so many tokens, in their order."""

    def __init__(self, *cached_tokens: int) -> None:
        super().__init__(says("x"))
        self._cached_tokens = iter(cached_tokens)

    def generate(self, request: GenerationRequest) -> FakeGeneration:
        generation = super().generate(request)
        generation.statistics.cached_tokens = next(self._cached_tokens)
        return generation


async def test_usage_counts_of_each_prompt_what_none_of_its_choices_read(connect):
    async with connect(CachingEngine(3, 4, 4, 0, 1, 1)) as client:
        answer = (await client.post(COMPLETIONS, json={"prompt": ["prompt", "other"], "n": 3})).json()
    assert answer["usage"]["prompt_tokens_details"] == {"cached_tokens": 3 + 0}
    assert answer["hetspec"]["cached_tokens"] == 13
    assert [choice["cached_tokens"] for choice in answer["hetspec"]["choices"]] == [3, 4, 4, 0, 1, 1]


async def test_a_stream_tells_cached_tokens_with_its_usage(connect):
    async with connect(CachingEngine(2)) as client:
        body = HELLO | {"stream": True, "stream_options": {"include_usage": True}}
        lines = (await client.post(CHAT, json=body)).text.splitlines()
    last = json.loads([line for line in lines if line.startswith("data: {")][-1].removeprefix("data: "))
    assert last["usage"]["prompt_tokens_details"] == {"cached_tokens": 2}
    assert last["hetspec"]["cached_tokens"] == 2


@pytest.mark.parametrize(
    ("options", "reused"), [({}, True), ({"prefix_cache": True}, True), ({"prefix_cache": False}, False)]
)
async def test_a_request_may_decline_the_cache(connect, options, reused):
    engine = FakeEngine(says("x"))
    async with connect(engine) as client:
        assert (await client.post(CHAT, json=HELLO | {"hetspec": options})).status_code == 200
    assert [request.reuse_prefix for request in engine.requests] == [reused]


async def test_anything_but_a_yes_or_no_is_refused_by_name(connect):
    async with connect(FakeEngine(says("never"))) as client:
        answer = await client.post(CHAT, json=HELLO | {"hetspec": {"prefix_cache": "no"}})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "hetspec.prefix_cache")
