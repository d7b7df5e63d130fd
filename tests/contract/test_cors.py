"""Which web pages may use the server from a browser."""

from __future__ import annotations

import pytest

from orchestrator.engine.errors import UnitsUnavailable
from tests.contract.fake_engine import FakeEngine, says
from tests.contract.running import CHAT, HELLO

PAGE, OTHER = "https://page.example", "https://other.example"
KEY = "sk-alice-0123456789"
PREFLIGHT = {
    "access-control-request-method": "POST",
    "access-control-request-headers": "authorization, content-type, x-stainless-os",
}


def from_page(origin: str, **headers: str) -> dict[str, str]:
    return {"origin": origin} | headers


async def test_without_the_setting_no_page_is_allowed_anything(connect):
    async with connect(FakeEngine(says("x"))) as client:
        preflight = await client.options(CHAT, headers=from_page(PAGE, **PREFLIGHT))
        answer = await client.post(CHAT, json=HELLO, headers=from_page(PAGE))
    assert (preflight.status_code, preflight.headers["allow"]) == (405, "POST")
    assert preflight.json()["error"]["code"] == "method_not_allowed"
    for told in (preflight, answer):
        assert not any(name.startswith("access-control") for name in told.headers)


async def test_preflight_of_an_allowed_page_needs_no_key_and_allows_what_clients_send(connect):
    async with connect(FakeEngine(says("x")), cors_origins=f"http://a.example,{PAGE}", api_keys=KEY) as client:
        answer = await client.options(CHAT, headers=from_page(PAGE, **PREFLIGHT))
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == PAGE
    assert "POST" in answer.headers["access-control-allow-methods"]
    allowed = {name.strip().lower() for name in answer.headers["access-control-allow-headers"].split(",")}
    assert {"authorization", "content-type", "x-stainless-os"} <= allowed
    assert "Origin" in answer.headers["vary"]
    assert "access-control-allow-credentials" not in answer.headers


@pytest.mark.parametrize(
    "headers", [from_page(OTHER, **PREFLIGHT), from_page(PAGE, **PREFLIGHT | {"access-control-request-method": "PUT"})]
)
async def test_preflight_of_what_is_not_allowed_is_refused_in_openais_shape(connect, headers):
    async with connect(FakeEngine(says("x")), cors_origins=PAGE) as client:
        answer = await client.options(CHAT, headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "cors_refused")
    assert answer.headers.get("access-control-allow-origin") != OTHER


async def test_answers_and_errors_of_every_kind_can_be_read_by_an_allowed_page_and_no_other(connect):
    engine = FakeEngine(says("x"))
    key = {"authorization": f"Bearer {KEY}"}
    async with connect(engine, cors_origins=PAGE, api_keys=KEY, max_body_bytes=2000) as client:

        async def told(origin: str) -> dict[int, str | None]:
            found = {}
            for failure in (None, UnitsUnavailable("gone"), KeyError("a bug")):
                engine.script = says("x") if failure is None else lambda _, failure=failure: [failure]
                answer = await client.post(CHAT, json=HELLO, headers=from_page(origin, **key))
                found[answer.status_code] = answer.headers.get("access-control-allow-origin")
            for request in (
                client.post(CHAT, json=HELLO | {"n": 0}, headers=from_page(origin, **key)),
                client.post(CHAT, json=HELLO, headers=from_page(origin)),
                client.get("/nothing", headers=from_page(origin, **key)),
                client.get(CHAT, headers=from_page(origin, **key)),
                client.post(CHAT, json={"x": "y" * 3000}, headers=from_page(origin, **key)),
            ):
                answer = await request
                found[answer.status_code] = answer.headers.get("access-control-allow-origin")
            return found

        assert await told(PAGE) == dict.fromkeys((200, 503, 500, 400, 401, 404, 405, 413), PAGE)
        assert set((await told(OTHER)).values()) == {None}


async def test_any_page_may_be_allowed(connect):
    async with connect(FakeEngine(says("x")), cors_origins="*") as client:
        answer = await client.post(CHAT, json=HELLO, headers=from_page(OTHER))
        assert answer.headers["access-control-allow-origin"] == "*"
        assert "x-ratelimit-remaining-requests" in answer.headers["access-control-expose-headers"]


async def test_a_page_cannot_post_without_a_preflight(connect):
    """What browsers send across origins without asking first is of these types; none of them is taken for JSON."""
    engine = FakeEngine(says("never"))
    async with connect(engine) as client:
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", None):
            headers = from_page(OTHER) | ({"content-type": kind} if kind else {})
            answer = await client.post(CHAT, content=b'{"messages": []}', headers=headers)
            assert (answer.status_code, answer.json()["error"]["code"]) == (415, "unsupported_media_type")
    assert engine.requests == []
