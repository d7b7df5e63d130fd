"""The tables of drafting control, by the HTTP API."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from orchestrator.policies.control import AheadReport
from orchestrator.policies.edc import Edc, EdcSnapshot, EdcTables
from tests.contract.fake_engine import FakeEngine, says

BODY = {"prompt": "hi", "max_tokens": 4}


def learned() -> tuple[EdcTables, EdcSnapshot]:
    """Two batches of interval 5 were rejected each with one batch ahead, a third waits."""
    tables = EdcTables()
    edc = Edc(tables, 4.0)
    for _ in range(2):
        edc.verified(edc.drafted(2.5), 2.5, accepted_in_full=False)
        edc.look_ahead_dropped()
    edc.drafted(2.5)
    return tables, edc.snapshot()


COUNTER = (0 * 8 + 1) * 8 + 1  # older 0; newer: 5 / 4, rounded down; one ahead


async def test_tables_that_requests_share_are_told(connect: Callable[..., Any]) -> None:
    engine = FakeEngine(says("x"))
    engine.edc, _ = learned()
    async with connect(engine) as client:
        told = (await client.get("/v1/hetspec/edc")).json()
    assert told["object"] == "hetspec.edc"
    assert {i: value for i, value in enumerate(told["counters"]) if value != 2} == {COUNTER: 0}
    assert len(told["counters"]) == 512


async def test_tables_of_a_finished_request_are_told_by_its_id(connect: Callable[..., Any]) -> None:
    engine = FakeEngine(says("x"))
    _, snapshot = learned()
    engine.ahead = AheadReport(edc=snapshot)
    async with connect(engine) as client:
        done = await client.post("/v1/completions", json=BODY)
        told = (await client.get(f"/v1/hetspec/edc/{done.headers['x-request-id']}")).json()
    (choice,) = told["choices"]
    assert (told["id"], choice["index"]) == (done.headers["x-request-id"], 0)
    tables = choice["edc"]
    assert (tables["leht"], tables["lceht"], tables["ahead"]) == ([5, 0, 0, 0, 0, 0, 0, 0], [0] * 8, 1)
    assert (tables["index"], tables["may_look_ahead"]) == (COUNTER, False)
    assert (tables["verified"], tables["foretold"]) == (2, 1)  # the first was to be accepted
    assert tables["counters"][COUNTER] == 0


async def test_request_without_drafting_control_and_unknown_one_have_none(connect: Callable[..., Any]) -> None:
    async with connect(FakeEngine(says("x"))) as client:
        done = await client.post("/v1/completions", json=BODY)
        answers = [await client.get(f"/v1/hetspec/edc/{name}") for name in (done.headers["x-request-id"], "nobody")]
    assert [(answer.status_code, answer.json()["error"]["code"]) for answer in answers] == [
        (404, "edc_not_found"),
        (404, "request_not_found"),
    ]
