"""API keys: who is let in, within which limits, and that no key is ever told to anybody."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import openai
import pytest
from prometheus_client.parser import text_string_to_metric_families

from hetspec.rpc.logs import JsonLines
from tests.contract.fake_engine import FakeEngine, says
from tests.contract.running import CHAT, HELLO, Gated, Running, serve, wait_for

ALICE, BOB, EVE = "sk-alice-0123456789", "sk-bob-0123456789", "sk-eve-0123456789"
GUARDED = [
    ("POST", CHAT),
    ("POST", "/v1/completions"),
    ("POST", "/tokenize"),
    ("GET", "/v1/models"),
    ("GET", "/v1/models/fake-model"),
    ("GET", "/v1/hetspec/statistics"),
    ("GET", "/metrics"),
    ("GET", "/openapi.json"),
    ("GET", "/nothing"),
    ("DELETE", "/healthz/"),
]


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def with_keys(*entries: str) -> dict[str, Any]:
    return {"api_keys": ",".join(entries)}


@pytest.mark.parametrize(("method", "path"), GUARDED)
@pytest.mark.parametrize(
    "headers",
    [
        {},
        bearer(EVE),
        bearer(""),
        bearer(ALICE + "x"),
        bearer(ALICE.upper()),
        {"authorization": ALICE},
        {"authorization": f"Basic {ALICE}"},
        {"authorization": "Bearer"},
        {"x-api-key": ALICE},
    ],
)
async def test_without_a_known_key_everything_is_401_in_openais_shape(connect, method, path, headers):
    engine = FakeEngine(says("never"))
    async with connect(engine, **with_keys(ALICE)) as client:
        answer = await client.request(method, path, headers=headers)
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
    error = answer.json()["error"]
    assert (error["code"], error["type"], error["param"]) == ("invalid_api_key", "invalid_request_error", None)
    assert ALICE not in answer.text
    assert EVE not in answer.text
    assert engine.requests == []


async def test_a_key_is_refused_before_any_of_the_body_is_read(connect):
    async with connect(FakeEngine(says("never")), max_body_bytes=1024, **with_keys(ALICE)) as client:
        answer = await client.post(CHAT, content=b"x" * 10_000, headers={"content-type": "application/json"})
    assert answer.status_code == 401


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
async def test_probes_need_no_key(connect, path):
    async with connect(FakeEngine(says("x")), **with_keys(ALICE)) as client:
        assert (await client.get(path)).status_code == 200


@pytest.mark.parametrize("headers", [bearer(ALICE), {"authorization": f"bearer  {BOB} "}])
async def test_any_of_the_keys_is_let_in(connect, headers):
    async with connect(FakeEngine(says("x")), **with_keys(ALICE, f"{BOB} bob")) as client:
        assert (await client.post(CHAT, json=HELLO, headers=headers)).status_code == 200
        assert (await client.get("/metrics", headers=headers)).status_code == 200


async def test_without_keys_nobody_needs_one(connect):
    async with connect(FakeEngine(says("x"))) as client:
        assert (await client.post(CHAT, json=HELLO)).status_code == 200
        assert (await client.post(CHAT, json=HELLO, headers=bearer(EVE))).status_code == 200


async def test_keys_of_a_file_change_while_the_server_runs(connect, tmp_path: Path):
    file = tmp_path / "keys"
    file.write_text(f"{ALICE} alice\n")
    async with connect(FakeEngine(says("x")), api_keys_file=file) as client:
        assert (await client.get("/v1/models", headers=bearer(ALICE))).status_code == 200
        file.write_text(f"{BOB} bob\n")
        assert (await client.get("/v1/models", headers=bearer(ALICE))).status_code == 401
        assert (await client.get("/v1/models", headers=bearer(BOB))).status_code == 200


async def test_requests_a_minute_are_bounded_by_key_and_told_in_openais_headers(connect):
    async with connect(FakeEngine(says("x")), **with_keys(f"{ALICE} a requests_per_minute=2", BOB)) as client:
        told = [await client.post(CHAT, json=HELLO, headers=bearer(ALICE)) for _ in range(3)]
        assert [answer.status_code for answer in told] == [200, 200, 429]
        assert [answer.headers["x-ratelimit-remaining-requests"] for answer in told] == ["1", "0", "0"]
        assert {answer.headers["x-ratelimit-limit-requests"] for answer in told} == {"2"}
        error = told[2].json()["error"]
        assert (error["type"], error["code"]) == ("rate_limit_error", "rate_limit_exceeded")
        assert 1 <= int(told[2].headers["retry-after"]) <= 30
        assert (await client.get("/v1/models", headers=bearer(ALICE))).status_code == 200
        other = await client.post(CHAT, json=HELLO, headers=bearer(BOB))
        assert other.status_code == 200
        assert not any(name.startswith("x-ratelimit") for name in other.headers)


@pytest.mark.parametrize("stream", [False, True])
async def test_tokens_a_minute_count_prompt_and_answer_as_usage_does(connect, stream):
    async with connect(FakeEngine(says("abc", "de")), **with_keys(f"{ALICE} a tokens_per_minute=1000")) as client:
        body = HELLO | {"stream": stream} | ({"stream_options": {"include_usage": True}} if stream else {})
        first = await client.post(CHAT, json=body, headers=bearer(ALICE))
        last = json.loads(first.text.split("data: ")[-2]) if stream else first.json()
        used = last["usage"]["total_tokens"]
        assert used == len("<user>hi<assistant>") + 5
        second = await client.post(CHAT, json=HELLO, headers=bearer(ALICE))
    left = 1000 - 2 * used
    assert left <= int(second.headers["x-ratelimit-remaining-tokens"]) <= left + 3  # some flowed in meanwhile


async def test_a_key_that_has_overdrawn_its_tokens_waits(connect):
    async with connect(FakeEngine(says("abc")), **with_keys(f"{ALICE} a tokens_per_minute=10")) as client:
        assert (await client.post(CHAT, json=HELLO, headers=bearer(ALICE))).status_code == 200
        refused = await client.post(CHAT, json=HELLO, headers=bearer(ALICE))
    owed = len("<user>hi<assistant>") + 3 - 10 + 1
    assert refused.status_code == 429
    assert owed * 6 - 6 <= int(refused.headers["retry-after"]) <= owed * 6


@pytest.mark.parametrize("stream", [False, True])
async def test_requests_at_once_are_bounded_by_key_and_end_with_the_answer(stream):
    script = Gated(early=stream)
    body = HELLO | {"stream": stream}
    async with serve(FakeEngine(script), **with_keys(f"{ALICE} a running=1", BOB)) as running:
        client = running.client
        first = asyncio.create_task(client.post(CHAT, json=body, headers=bearer(ALICE)))
        await script.started.wait()
        refused = await client.post(CHAT, json=body, headers=bearer(ALICE))
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "rate_limit_exceeded")
        assert int(refused.headers["retry-after"]) >= 1
        other = asyncio.create_task(client.post(CHAT, json=body, headers=bearer(BOB)))
        await wait_for(lambda: running.admission.running == 2)
        script.gate.set()
        assert [answer.status_code for answer in await asyncio.gather(first, other)] == [200, 200]
        assert (await client.post(CHAT, json=body, headers=bearer(ALICE))).status_code == 200


async def test_a_client_that_leaves_gives_its_place_back():
    script = Gated(early=False)
    async with serve(FakeEngine(script), **with_keys(f"{ALICE} a running=1")) as running:
        asking = asyncio.create_task(running.client.post(CHAT, json=HELLO, headers=bearer(ALICE)))
        await script.started.wait()
        asking.cancel()
        await wait_for(lambda: running.admission.idle)
        script.gate.set()
        assert (await running.client.post(CHAT, json=HELLO, headers=bearer(ALICE))).status_code == 200


async def test_a_full_queue_refuses_the_key_that_fills_it_and_serves_another():
    script = Gated(early=False)
    engine = FakeEngine(script)
    keys = with_keys(f"{ALICE} alice", f"{BOB} bob")
    async with serve(engine, max_running=1, max_queued=2, **keys) as running:
        client = running.client
        greedy = [asyncio.create_task(client.post(CHAT, json=HELLO, headers=bearer(ALICE))) for _ in range(3)]
        await wait_for(lambda: running.admission.queued == 2)
        assert (await client.post(CHAT, json=HELLO, headers=bearer(ALICE))).status_code == 429
        modest = asyncio.create_task(client.post(CHAT, json=HELLO, headers=bearer(BOB)))
        displaced, _ = await asyncio.wait(greedy, return_when=asyncio.FIRST_COMPLETED)
        assert [task.result().status_code for task in displaced] == [429]
        script.gate.set()
        statuses = sorted(answer.status_code for answer in await asyncio.gather(*greedy, modest))
    assert statuses == [200, 200, 200, 429]


async def test_metrics_name_keys_by_their_names(connect):
    async with connect(FakeEngine(says("abc")), **with_keys(f"{ALICE} alice requests_per_minute=1", BOB)) as client:
        for _ in range(2):
            await client.post(CHAT, json=HELLO, headers=bearer(ALICE))
        text = (await client.get("/metrics", headers=bearer(BOB))).text
    samples = {
        (s.name, *sorted(s.labels.values())): s.value for f in text_string_to_metric_families(text) for s in f.samples
    }
    assert samples["hetspec_key_requests_total", "200", "alice"] == 1
    assert samples["hetspec_key_requests_total", "429", "alice"] == 1
    assert samples["hetspec_key_tokens_total", "alice"] == len("<user>hi<assistant>") + 3
    assert samples["hetspec_key_tokens_total", "key-2"] == 0
    assert samples["hetspec_key_requests_running", "alice"] == 0


class Records(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.setFormatter(JsonLines("orchestrator"))

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


async def test_no_key_is_logged_told_or_counted_whatever_happens(tmp_path: Path):
    """Everything logged at DEBUG, every answer and every metric, after good requests, bad ones and a crash."""
    told, records = [], Records()
    root = logging.getLogger()
    level = root.level
    root.addHandler(records)
    root.setLevel(logging.DEBUG)
    file = tmp_path / "keys"
    file.write_text(f"{ALICE} alice requests_per_minute=3\n{BOB} bob\n")
    engine = FakeEngine(lambda _: [KeyError("a bug")])
    try:
        async with serve(engine, api_keys_file=file) as running:
            for key in (ALICE, BOB, EVE):
                bodies = (HELLO, HELLO | {"stream": True}, HELLO | {"n": "x"}, {})
                told += [await running.client.post(CHAT, json=body, headers=bearer(key)) for body in bodies]
                told += [await running.client.get(path, headers=bearer(key)) for path in ("/nothing", "/metrics")]
            file.write_text(f"{ALICE} alice\nbroken {BOB}\n")
            told.append(await running.client.get("/readyz", headers=bearer(ALICE)))
            told.append(await running.client.get("/v1/models", headers=bearer(ALICE)))
    finally:
        root.removeHandler(records)
        root.setLevel(level)
    everything = "\n".join([*records.lines, *(answer.text + repr(answer.headers) for answer in told)])
    assert {answer.status_code for answer in told} >= {200, 400, 401, 404, 429, 500}
    assert '"key": "alice"' in everything
    assert "API keys not read again" in everything
    assert not any(key in everything for key in (ALICE, BOB, EVE))


def openai_client(running: Running, key: str) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{running.url}/v1", api_key=key, max_retries=0)


async def test_openai_client_authenticates_and_sees_its_own_exceptions():
    async with serve(FakeEngine(says("x")), **with_keys(f"{ALICE} a requests_per_minute=1")) as running:
        messages: Any = HELLO["messages"]
        async with openai_client(running, ALICE) as client:
            answer = await client.chat.completions.with_raw_response.create(model="default", messages=messages)
            assert answer.headers["x-ratelimit-remaining-requests"] == "0"
            with pytest.raises(openai.RateLimitError) as limited:
                await client.chat.completions.create(model="default", messages=messages)
            assert limited.value.code == "rate_limit_exceeded"
        async with openai_client(running, EVE) as client:
            with pytest.raises(openai.AuthenticationError) as refused:
                await client.models.list()
            assert refused.value.code == "invalid_api_key"
