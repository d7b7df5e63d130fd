"""The SDK against the real HTTP API over a scripted engine, and against servers that misbehave."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from hetspec_client import (
    ApiError,
    AsyncClient,
    AuthenticationFailed,
    BrokenStream,
    Chunk,
    Client,
    ConnectionFailed,
    DeadlineExceeded,
    InvalidInput,
    InvalidRequest,
    NotFound,
    ServerFailed,
    TooManyRequests,
    Unavailable,
    UnexpectedAnswer,
)
from orchestrator.engine.errors import DeadlineExceeded as EngineDeadlineExceeded
from orchestrator.engine.request import Emission, GenerationRequest
from tests.clients.servers import HOST, events, live, nothing_open, raw, response
from tests.contract.fake_engine import FakeEngine, Step, byte_level_text, says, tokens

HI: list[dict[str, Any]] = [{"role": "user", "content": "hi"}]
PIECES = ("né", "\r\n\n", "data: x\u2028", "", "🙂", "漢字\x85")
TEXT = byte_level_text()
ENDPOINTS = ("chat", "complete")

CHOICES = [{"index": 0, "message": {"content": None}, "finish_reason": "stop"}]
CHUNK = json.dumps({"id": "1", "model": "m", "object": "chat.completion.chunk", "choices": [
    {"index": 0, "delta": {"content": "a"}, "finish_reason": None}]})  # fmt: skip


def ask(client: Client, endpoint: str, **options: Any) -> Any:
    return client.chat(HI, **options) if endpoint == "chat" else client.complete("hi", **options)


def ask_streamed(client: Client, endpoint: str, **options: Any) -> Any:
    return client.stream_chat(HI, **options) if endpoint == "chat" else client.stream_complete("hi", **options)


def without_identity(told: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in told.items() if name not in ("id", "created")}


def endless(started: Callable[[], object] = lambda: None) -> Any:
    """Says one token and then waits for ever."""

    def script(_: GenerationRequest) -> Iterable[Step]:
        yield Emission("a", tokens(TEXT, "a"), None)
        started()
        yield asyncio.Event()

    return script


@pytest.mark.parametrize("endpoint", ENDPOINTS)
@pytest.mark.parametrize(("n", "rivals"), [(1, None), (1, 2), (3, 2)])
def test_stream_adds_up_to_the_whole_answer(endpoint, n, rivals):
    options: dict[str, Any] = {"seed": 4, "n": n}
    if rivals is not None:
        options |= {"logprobs": True, "top_logprobs": rivals} if endpoint == "chat" else {"logprobs": rivals}
    with live(FakeEngine(says(*PIECES))) as url, Client(url) as client:
        whole = ask(client, endpoint, **options)
        with ask_streamed(client, endpoint, **options) as stream:
            chunks = list(stream)
    for choice in whole.choices:
        assert "".join(c.text for c in chunks if c.index == choice.index) == choice.text == "".join(PIECES)
    assert without_identity(stream.answer.raw) == without_identity(whole.raw)


def test_answer_is_typed():
    with live(FakeEngine(says("Hel", "lo"))) as url, Client(url) as client:
        answer = client.chat(HI, mode="chain", seed=7)
    assert (answer.text, answer.model, answer.choices[0].finish_reason) == ("Hello", "fake-model", "stop")
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 5
    told = answer.statistics
    assert told is not None
    assert (told.mode, told.seed, told.rounds, told.drafted, told.verified) == ("chain", 7, 3, 9, 9)
    assert (told.accepted, told.emitted, told.accept_length) == (6, 9, 3.0)
    assert told.host_ns == {"verifier": 1_000, "sampler": 200}
    assert (told.drafted_by_depth, told.accepted_by_source) == ([5, 4], {"model": 6})
    assert told.more == {"clock": "host", "pruned": 0, "drafting": "fixed"}


def test_statistics_of_a_newer_server_are_kept():
    whole = {"id": "1", "model": "m", "choices": CHOICES, "hetspec": {
        "mode": "full", "rounds": 1, "drafted": 2, "verified": 2, "accepted": 1, "emitted": 2, "accept_length": 2.0,
        "host_ns": {}, "seed": 3, "emulated_ns": 5, "energy_uj": {"npu": 1.5}}}  # fmt: skip
    with raw(response(json.dumps(whole).encode())) as server, Client(server.url) as client:
        answer = client.chat(HI)
    assert answer.statistics is not None
    assert answer.statistics.more == {"emulated_ns": 5, "energy_uj": {"npu": 1.5}}


def test_options_are_sent_as_the_api_names_them_and_hetspecs_own_inside_its_object():
    with raw(response(b"{}")) as server, Client(server.url, api_key="k") as client:
        with pytest.raises(UnexpectedAnswer):
            client.complete([1, 2], max_tokens=3, stop=["x"], mode="tree", max_nodes=8, regex="a+", seed=None, hetspec={
                "new": 1})  # fmt: skip
        with pytest.raises(BrokenStream):
            list(client.stream_chat(HI, temperature=0.5))
    completion, chat = map(json.loads, server.requests)
    assert completion == {"prompt": [1, 2], "max_tokens": 3, "stop": ["x"], "hetspec": {
        "new": 1, "mode": "tree", "max_nodes": 8, "regex": "a+"}}  # fmt: skip
    assert chat == {
        "messages": HI, "temperature": 0.5, "stream": True, "stream_options": {"include_usage": True}}  # fmt: skip


def test_models_readiness_and_metrics():
    engine = FakeEngine(says("hello"))
    with live(engine) as url, Client(url) as client:
        assert [(model.id, model.max_model_len) for model in client.models()] == [("fake-model", 256)]
        client.chat(HI, mode="chain")
        assert client.metrics().by("hetspec_generated_tokens_total", "mode") == {"chain": 5.0}
        engine.units["sampler"] = False
        waiting = client.readiness()
        assert (waiting.status, waiting.missing) == ("waiting", ["sampler"])


def test_validation_error_names_its_field():
    with live(FakeEngine(says("a"))) as url, Client(url) as client, pytest.raises(InvalidRequest) as refused:
        client.chat(HI, temperature=3)
    assert (refused.value.status, refused.value.param, refused.value.exit_code) == (400, "temperature", 2)
    assert "temperature" in refused.value.message


def test_unknown_options_reach_the_server_and_are_refused_there():
    options: Any = {"no_such_field": 1}
    with live(FakeEngine(says("a"))) as url, Client(url) as client, pytest.raises(InvalidRequest) as refused:
        client.chat(HI, **options)
    assert refused.value.param == "no_such_field"


def test_other_model_is_not_found():
    with live(FakeEngine(says("a"))) as url, Client(url) as client, pytest.raises(NotFound) as refused:
        client.chat(HI, model="gpt-4")
    assert refused.value.status == 404


def test_missing_unit_is_unavailable():
    engine = FakeEngine(says("a"))
    engine.units["verifier"] = False
    with live(engine) as url, Client(url) as client, pytest.raises(Unavailable) as refused:
        client.chat(HI)
    assert (refused.value.status, refused.value.exit_code) == (503, 1)


def test_full_server_says_when_to_try_again():
    full = live(FakeEngine(endless()), max_running=1, max_queued=0)
    with full as url, Client(url) as client, client.stream_chat(HI), pytest.raises(TooManyRequests) as refused:
        client.chat(HI)
    assert refused.value.retry_after_s == 1.0


def test_deadline_has_its_own_error():
    engine = FakeEngine(lambda _: [EngineDeadlineExceeded("too late")])
    with live(engine) as url, Client(url) as client, pytest.raises(DeadlineExceeded):
        client.chat(HI)


@pytest.mark.parametrize(
    ("status", "kind"), [("401 Unauthorized", AuthenticationFailed), ("502 Bad Gateway", ServerFailed)]
)
def test_error_pages_of_others_keep_their_status(status, kind):
    page = response(b"<html>\n<h1>No</h1></html>", "text/html", status)
    with raw(page) as server, Client(server.url) as client, pytest.raises(kind) as refused:
        client.chat(HI)
    assert str(refused.value) == f"HTTP status {status[:3]}: <html> <h1>No</h1></html>"


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_failure_inside_a_stream_is_an_error_after_what_came(endpoint):
    engine = FakeEngine(lambda _: [Emission("a", (), None), KeyError("a bug")])
    got: list[Chunk] = []
    with live(engine) as url, Client(url) as client:
        stream = ask_streamed(client, endpoint)
        with pytest.raises(ServerFailed) as failed:
            got.extend(stream)
        assert (failed.value.status, failed.value.code) == (200, "internal_error")
        with pytest.raises(BrokenStream):
            _ = stream.answer


@pytest.mark.parametrize("told", [(CHUNK,), (), (CHUNK, CHUNK[:20])])
def test_stream_that_ends_before_its_end_was_told_is_broken(told):
    answer = events(*told)[: -2 if told and told[-1] != CHUNK else None]  # the last event is cut off
    with raw(answer) as server, Client(server.url) as client, pytest.raises(BrokenStream):
        list(client.stream_chat(HI))


def test_stream_that_breaks_a_promised_length_is_broken():
    body = f"data: {CHUNK}\n\n".encode()
    answer = response(body, "text/event-stream").replace(b"content-length: ", b"content-length: 9")
    with raw(answer) as server, Client(server.url) as client, pytest.raises(BrokenStream):
        list(client.stream_chat(HI))


@pytest.mark.parametrize("event", ["nonsense", "[1]", "{}", '{"choices": [{"index": 0}]}', '{"error": null}'])
def test_events_of_another_api_are_unexpected(event):
    with raw(events(event)) as server, Client(server.url) as client, pytest.raises(UnexpectedAnswer):
        list(client.stream_chat(HI))


@pytest.mark.parametrize(
    "body", [b"<html>", b"[]", b"null", b'{"choices": 1}', b'{"choices": []}', b'{"id": "1", "model": "m"}', b"\xff"]
)
def test_answers_of_another_api_are_unexpected(body):
    with raw(response(body)) as server, Client(server.url) as client:
        for asked in (lambda: client.chat(HI), client.models, client.readiness):
            with pytest.raises(UnexpectedAnswer):
                asked()


def test_server_that_is_down_is_a_failed_connection():
    with socket.create_server((HOST, 0)) as holder:
        port = holder.getsockname()[1]
    with Client(f"http://{HOST}:{port}") as client, pytest.raises(ConnectionFailed, match=str(port)):
        client.chat(HI)


@pytest.mark.parametrize(
    ("answer", "kind"), [(b"", ConnectionFailed), (events(), BrokenStream), (events(CHUNK), BrokenStream)]
)
def test_silent_server_is_given_up_after_the_timeout(answer, kind):
    hanging = raw(answer, then_hangs=True)
    with hanging as server, Client(server.url, timeout_s=0.1) as client, pytest.raises(kind, match="silent for"):
        list(client.stream_chat(HI))


@pytest.mark.parametrize("answer", [b"", response(b"{}", status="503 Unavailable", headers="retry-after: 1\r\n")])
def test_nothing_is_sent_twice(answer):
    with raw(answer) as server, Client(server.url) as client:
        for asked in (lambda: client.chat(HI), lambda: list(client.stream_chat(HI))):
            with pytest.raises((ApiError, ConnectionFailed)):
                asked()
    assert len(server.requests) == 2


@pytest.mark.parametrize("read", [0, 1, 2])
def test_leaving_a_stream_ends_the_request(read):
    engine = FakeEngine(endless())
    with live(engine) as url, Client(url) as client:
        with client.stream_chat(HI) as stream:
            assert [next(stream).text for _ in range(read)] == ["", "a"][:read]
            assert engine.open == 1
        nothing_open(engine)


@pytest.mark.parametrize("url", ["", "127.0.0.1:8000", "ftp://host", "http://", "http://\ud800"])
def test_bad_url_is_refused_before_anything_is_sent(url):
    with pytest.raises(InvalidInput, match="url = "):
        Client(url)


@pytest.mark.parametrize("key", ["", "a\nb", "ключ"])
def test_bad_api_key_is_refused_and_not_shown(key):
    with pytest.raises(InvalidInput, match="api_key") as refused:
        Client(api_key=key)
    assert not key or key not in str(refused.value)


@pytest.mark.parametrize("options", [{"temperature": float("nan")}, {"user": "\ud800"}, {"logit_bias": {1: object()}}])
def test_what_json_cannot_hold_is_refused_before_anything_is_sent(options):
    with raw(response(b"{}")) as server, Client(server.url) as client, pytest.raises(InvalidInput):
        client.chat(HI, **options)
    assert server.requests == []


def test_api_key_is_a_bearer_token():
    with Client("http://h", api_key="secret") as client:
        assert client._http.headers["authorization"] == "Bearer secret"


async def test_async_client_tells_the_same():
    engine = FakeEngine(says(*PIECES))
    with live(engine) as url, Client(url) as client:
        async with AsyncClient(url) as asynchronous:
            whole = await asynchronous.chat(HI, seed=4)
            async with await asynchronous.stream_chat(HI, seed=4) as stream:
                text = "".join([chunk.text async for chunk in stream])
            completion = await asynchronous.complete("hi", seed=4)
            async with await asynchronous.stream_complete("hi", seed=4) as streamed:
                _ = [chunk async for chunk in streamed]
            assert await asynchronous.models() == await asyncio.to_thread(client.models)
            assert await asynchronous.readiness() == await asyncio.to_thread(client.readiness)
            assert (await asynchronous.metrics()).total("hetspec_requests_total") == 4
            with pytest.raises(InvalidRequest):
                await asynchronous.chat(HI, temperature=3)
        expected = await asyncio.to_thread(client.chat, HI, seed=4)
    assert text == whole.text
    assert without_identity(stream.answer.raw) == without_identity(whole.raw) == without_identity(expected.raw)
    assert without_identity(streamed.answer.raw) == without_identity(completion.raw)


async def test_leaving_an_unread_stream_ends_the_request_in_asyncio_too():
    engine = FakeEngine(endless())
    with live(engine) as url:
        async with AsyncClient(url) as client:
            async with await client.stream_chat(HI):
                assert engine.open == 1
            await asyncio.to_thread(nothing_open, engine)


async def test_cancelled_task_ends_its_request():
    engine = FakeEngine(endless())
    with live(engine) as url:
        async with AsyncClient(url) as client:
            arrived = asyncio.Event()

            async def read() -> None:
                async with await client.stream_chat(HI) as stream:
                    async for _ in stream:
                        arrived.set()

            reading = asyncio.create_task(read())
            await arrived.wait()
            reading.cancel()
            await asyncio.wait((reading,))
        await asyncio.to_thread(nothing_open, engine)


async def test_broken_stream_is_an_error_in_asyncio_too():
    with raw(events(CHUNK)) as server:
        async with AsyncClient(server.url) as client:
            with pytest.raises(BrokenStream):
                _ = [chunk async for chunk in await client.stream_chat(HI)]
