"""Whatever is sent, what comes back is JSON in OpenAI's error shape: never a page, a redirect or a traceback."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.types import ASGIApp, Receive, Scope, Send

from orchestrator.api.body_limit import BodyLimit
from tests.contract.fake_engine import FakeEngine, says
from tests.contract.running import CHAT, HELLO, raw, serve

JSON = {"content-type": "application/json"}
HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"


def is_openais(body: bytes) -> bool:
    error = json.loads(body)["error"]
    return set(error) == {"message", "type", "param", "code"} and bool(error["message"])


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/v1", 404),
        ("GET", "/v1/", 404),
        ("GET", "/v1/models/", 404),
        ("POST", CHAT + "/", 404),
        ("GET", "/healthz/", 404),
        ("GET", "/v1/chat/../models", 404),
        ("GET", "/%00", 404),
        ("GET", "/" + "x" * 5000, 404),
        ("GET", "/docs", 404),
        ("PUT", CHAT, 405),
        ("PATCH", CHAT, 405),
        ("DELETE", CHAT, 405),
        ("OPTIONS", CHAT, 405),
        ("POST", "/v1/models", 405),
        ("POST", "/healthz", 405),
        ("BREW", CHAT, 405),
    ],
)
async def test_wrong_path_is_404_and_wrong_method_405_without_a_redirect(method, path, status):
    async with serve(FakeEngine(says("never"))) as running:
        request = f"{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
        code, headers, body = await raw(running.port, request, ends=False)
    assert code == status
    assert "location" not in headers
    assert headers["content-type"] == "application/json"
    if status == 405:
        assert headers["allow"] in ("POST", "GET")
    assert is_openais(body)


async def test_head_of_what_has_no_get_is_405():
    async with serve(FakeEngine(says("x"))) as running:
        answer = await running.client.head(CHAT)
    assert (answer.status_code, answer.headers["allow"], answer.content) == (405, "POST", b"")


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics", "/v1/models"])
async def test_head_is_get_without_the_body(path):
    async with serve(FakeEngine(says("x"))) as running:
        whole, bare = await running.client.get(path), await running.client.head(path)
    assert bare.status_code == whole.status_code == 200
    assert bare.content == b""
    assert bare.headers["content-type"] == whole.headers["content-type"]
    assert bare.headers["content-length"] == whole.headers["content-length"] or path == "/metrics"


@pytest.mark.parametrize(
    "request_",
    [
        b"nonsense\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/9.9\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        HEAD + b"Content-Length: abc\r\n\r\n{}",
        HEAD + b"Content-Length: -1\r\n\r\n{}",
        HEAD + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        HEAD + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n{}",
        HEAD + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
        HEAD + b"Transfer-Encoding: gzip\r\n\r\n{}",
        b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 100_000 + b"\r\n\r\n",
    ],
    ids=lambda request: repr(request[-40:]),
)
async def test_what_is_no_http_is_refused_in_the_same_shape(request_):
    engine = FakeEngine(says("never"))
    async with serve(engine) as running:
        status, headers, body = await raw(running.port, request_, ends=False)
        assert (await running.client.get("/healthz")).status_code == 200
    assert 400 <= status < 500
    assert headers["content-type"] == "application/json"
    assert is_openais(body)
    assert engine.requests == []


@pytest.mark.parametrize(
    ("framing", "body", "status"),
    [
        (b"Content-Length: 4096\r\n\r\n", b"{", 413),
        (b"Content-Length: 1025\r\n\r\n", b" " * 1025, 413),
        (b"Content-Length: 99999999999999999\r\n\r\n", b"{", 413),
        (b"Transfer-Encoding: chunked\r\n\r\n", b"400\r\n" + b" " * 1024 + b"\r\n1\r\n \r\n0\r\n\r\n", 413),
        (b"Transfer-Encoding: chunked\r\n\r\n", b"2\r\n{}\r\n0\r\n\r\n", 400),
        (b"Content-Length: 1\r\n\r\n", b'{"messages": []}', 400),
        (b"Content-Length: 0\r\n\r\n", b"", 400),
        (b"\r\n", b"", 400),
    ],
)
async def test_a_body_is_bounded_and_read_by_its_declared_length(framing, body, status):
    engine = FakeEngine(says("never"))
    async with serve(engine, max_body_bytes=1024) as running:
        code, _, answer = await raw(running.port, HEAD + framing + body, ends=False)
    assert code == status
    assert is_openais(answer)
    assert engine.requests == []


async def test_chunks_that_fit_are_served():
    body = json.dumps(HELLO).encode()
    chunks = b"".join(b"%x\r\n%s\r\n" % (1, bytes([byte])) for byte in body) + b"0\r\n\r\n"
    async with serve(FakeEngine(says("x")), max_body_bytes=1024) as running:
        status, _, _ = await raw(running.port, HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunks, ends=False)
    assert status == 200


async def test_a_body_that_stops_coming_is_408():
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive()).get("more_body"):
            pass

    told: list[str] = []

    async def receive() -> Any:
        if told:
            await asyncio.Event().wait()
        told.append("part")
        return {"type": "http.request", "body": b"{", "more_body": True}

    bounded: ASGIApp = BodyLimit(app, max_bytes=100, patience_s=0.01)
    scope = {"type": "http", "headers": [(b"content-length", b"50")]}
    with pytest.raises(Exception, match="has not come") as refused:
        await bounded(scope, receive, lambda _: asyncio.sleep(0))
    assert getattr(refused.value, "status_code", None) == 408


DEEP = [10, 100, *range(480, 520, 5), 900, 950, 1000, 5000, 100_000]


@pytest.mark.parametrize("field", ["messages", "tools", "stop", "hetspec", "unheard_of", "metadata", "logit_bias"])
async def test_nesting_of_any_depth_is_400(connect, field):
    async with connect(FakeEngine(says("never"))) as client:
        for opening, closing in (("[", "]"), ('{"a":', "}")):
            for depth in DEEP:
                nested = opening * depth + "1" + closing * depth
                content = f'{{"messages": [{{"role": "user", "content": "hi"}}], "{field}": {nested}}}'
                if field == "messages":
                    content = f'{{"messages": {nested}}}'
                answer = await client.post(CHAT, content=content, headers=JSON)
                assert answer.status_code == 400, (field, opening, depth, answer.text)
                assert is_openais(answer.content)


@pytest.mark.parametrize(
    ("content", "param"),
    [
        ('{"temperature": 0, "temperature": 1, "messages": [{"role": "user", "content": "hi"}]}', "temperature"),
        ('{"messages": [{"role": "user", "content": "hi", "content": "ho"}]}', "messages[0].content"),
        (
            '{"messages": [{"role": "user", "content": "hi"}], "hetspec": {"mode": "tree", "mode": "tree"}}',
            "hetspec.mode",
        ),
        ('{"messages": [], "messages": []}', "messages"),
    ],
)
async def test_a_repeated_key_is_refused_by_its_path(connect, content, param):
    engine = FakeEngine(says("never"))
    async with connect(engine) as client:
        answer = await client.post(CHAT, content=content, headers=JSON)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
    assert engine.requests == []


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32", "utf-8-sig", "latin-1"])
async def test_json_in_another_encoding_is_refused(connect, encoding):
    content = json.dumps({"messages": [{"role": "user", "content": "é"}]}, ensure_ascii=False).encode(encoding)
    async with connect(FakeEngine(says("never"))) as client:
        answer = await client.post(CHAT, content=content, headers=JSON)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_json")


@pytest.mark.parametrize("literal", ["NaN", "Infinity", "-Infinity", "1e400", "1" * 5000, "-" + "9" * 400, "0x10"])
@pytest.mark.parametrize("field", ["temperature", "top_p", "timeout", "max_tokens", "seed", "n", "presence_penalty"])
async def test_a_number_that_is_none_is_refused(connect, field, literal):
    engine = FakeEngine(says("never"))
    content = f'{{"messages": [{{"role": "user", "content": "hi"}}], "{field}": {literal}}}'
    async with connect(engine) as client:
        answer = await client.post(CHAT, content=content, headers=JSON)
    error = answer.json()["error"]
    assert answer.status_code == 400
    assert error["param"] == field or error["code"] == "invalid_json"
    assert engine.requests == []


@pytest.mark.parametrize(
    "kind", ["application/json; charset=utf-8", "application/vnd.api+json", "APPLICATION/JSON", "application/json"]
)
async def test_json_under_any_of_its_names_is_taken(connect, kind):
    async with connect(FakeEngine(says("x"))) as client:
        answer = await client.post(CHAT, content=json.dumps(HELLO), headers={"content-type": kind})
    assert answer.status_code == 200


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=60), st.integers(0, 60), st.sampled_from([CHAT, "/v1/completions"]))
def test_a_body_with_bytes_replaced_is_never_a_failure_of_the_server(connect, noise, at, path):
    whole = json.dumps(HELLO if path == CHAT else {"prompt": "hi", "max_tokens": 4}).encode()
    content = whole[:at] + noise + whole[at + len(noise) :]

    async def ask() -> None:
        async with connect(FakeEngine(says("x"))) as client:
            answer = await client.post(path, content=content, headers=JSON)
        assert answer.status_code in (200, 400, 404)
        assert answer.status_code == 200 or is_openais(answer.content)

    asyncio.run(ask())
