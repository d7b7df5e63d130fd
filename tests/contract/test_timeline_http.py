"""The trace of a request over HTTP: what its blocks and arrows add up to, and who may see it."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from hetspec.hardware.cost_as import parse_cost_as
from hetspec.hardware.profile import load_profile
from orchestrator.api.admission import Admission
from orchestrator.api.app import create_app
from orchestrator.clock.settings import WorldSettings
from orchestrator.config import OrchestratorSettings
from orchestrator.policies.mode import Mode
from tests import trace_rules
from tests.contract.fake_engine import FakeEngine, says
from tests.contract.running import CHAT, HELLO
from tests.contract.test_auth import ALICE, BOB, bearer, with_keys
from tests.models import make_checkpoint
from tests.system import Setup, System
from tests.trace_rules import arrows, blocks, busy_ns

BODY = {"prompt": list(range(30, 110)), "max_tokens": 24, "temperature": 0}
EMULATED, HOST = 1, 2
Json = dict[str, Any]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("timeline") / "tiny", "qwen3", num_hidden_layers=2)


@asynccontextmanager
async def serving(
    tiny: Path, hardware: str | None, cost_as: str = "llama2-7b:int4+llama3.2-1b:int4", **more: Any
) -> AsyncIterator[httpx.AsyncClient]:
    """hardware: None, the host's clock. more: of the setup."""
    world = WorldSettings(load_profile(hardware), parse_cost_as(cost_as)) if hardware else None
    async with System(Setup(tiny, tiny.parent, world=world, **({"draft": tiny} | more))) as system:
        settings = OrchestratorSettings(min_gain=0)
        app = create_app(system.engine, settings, Admission(settings.max_running, settings.max_queued))
        transport = httpx.ASGITransport(app)  # type: ignore[arg-type]
        async with httpx.AsyncClient(transport=transport, base_url="http://server", timeout=60) as client:
            yield client


async def traced(client: httpx.AsyncClient, mode: str, name: str = "mine", **more: Any) -> tuple[Json, Json]:
    """What the answer tells, and the trace, which keeps to the rules."""
    body = BODY | more | {"hetspec": {"mode": mode, **more.get("hetspec", {})}}
    answer = (await client.post("/v1/completions", json=body, headers={"x-request-id": name})).json()
    trace = trace_rules.read((await client.get(f"/v1/hetspec/traces/{name}")).text)
    trace_rules.check(trace)
    return answer["hetspec"], trace


def of_kind(trace: Json, pid: int, kind: str) -> list[Json]:
    return [dict(block) for block in blocks(trace, pid) if block["cat"] == kind]


def drafted(block: Json) -> int:
    found = re.match(r"(?:draft|look ahead) (\d+) nodes", block["name"])
    return int(found[1]) if found else 0


@pytest.mark.parametrize("hardware", ["npu-lpddr5-pim", "phone-flash-pim"])
async def test_blocks_sum_to_the_busy_times_of_the_answer_and_arrows_match_its_rounds(tiny: Path, hardware: str):
    """Drafter and verifier have a device each; of the second profile's target, most is read from flash."""
    async with serving(tiny, hardware) as client:
        for mode in ("plain", "chain", "tree", "lever"):
            told, trace = await traced(client, mode)
            check_busy(told, trace)
            for pid in (EMULATED, HOST):
                check_rounds(told, trace, pid)
        told, trace = await traced(client, "ahasd")
        check_busy(told, trace)
        check_arrows_of_a_pipeline(told, trace)


@pytest.mark.parametrize("hardware", [None, "npu-lpddr5-pim"])
async def test_a_trace_of_every_mode_is_one_that_the_format_describes(hardware: str | None, tiny: Path, tmp_path: Path):
    """With all that may be in one; where time is the host's, what is in it hangs on that."""
    other, cost_as = make_checkpoint(tmp_path / "other", "qwen3", seed=1), "llama3.2-3b:int8+llama3.2-1b:int8"
    seen: set[tuple[str, str]] = set()
    async with serving(tiny, hardware, cost_as, draft=other, holds_target=True) as client:
        for mode, temperature in itertools.product(Mode, (0, 0.8)):
            more = {"outcomes": 4, "disable": ["tvc"]} if temperature and mode in (Mode.AHASD, Mode.FULL) else {}
            told, trace = await traced(client, mode, temperature=temperature, hetspec=more)
            assert trace["otherData"]["mode"] == told["mode"] == mode
            seen |= {(event["ph"], event.get("cat", "")) for event in trace["traceEvents"]}
            seen |= {("i", event["name"].split()[0]) for event in trace["traceEvents"] if event["ph"] == "i"}
    assert {("X", "look ahead"), ("s", "flow")} <= seen
    if hardware is not None:
        assert {("X", "pre-verify"), ("i", "cut:"), ("i", "dropped:"), ("i", "switch"), ("b", "queue")} <= seen


def check_busy(told: Json, trace: Json) -> None:
    """On the devices, by blocks; in the units, by their own clocks, of which a request's share goes by its rows."""
    assert busy_ns(trace, EMULATED) == told["busy_ns"]
    spent: Counter[str] = Counter()
    for block in blocks(trace, HOST):
        unit, about = trace_rules.lanes(trace, HOST)[block["tid"]].split()[0], block["args"]
        begin_ns, end_ns = trace_rules.span(block)
        assert about["compute_ns"] <= end_ns - begin_ns
        spent[unit] += about["compute_ns"] * about["rows"] // about["pass_rows"]
    if told["mode"] != "ahasd":  # a task that is cut never tells how long it computed
        assert spent == Counter({unit: told["host_ns"].get(unit, 0) for unit in spent})


def check_rounds(told: Json, trace: Json, pid: int) -> None:
    """Every round has its verification and walk, and an arrow from its draft, where there was one."""
    drafts, verdicts, joined = of_kind(trace, pid, "draft"), of_kind(trace, pid, "verify"), arrows(trace, pid)
    assert len(verdicts) == len(of_kind(trace, pid, "walk")) == told["rounds"]
    assert sum(map(drafted, drafts)) == told["drafted"]
    assert [source["name"] for source, _ in joined] == [draft["name"] for draft in drafts if drafted(draft)]
    assert all(_round(source) == _round(target) for source, target in joined)
    assert {target["cat"] for _, target in joined} <= {"verify"}


def check_arrows_of_a_pipeline(told: Json, trace: Json) -> None:
    """Whatever is verified was drafted before, and judged once."""
    joined = arrows(trace, EMULATED)
    assert {source["cat"] for source, _ in joined} <= {"draft", "look ahead"}
    assert {target["cat"] for _, target in joined} == {"verify"}
    assert len({source["ts"] for source, _ in joined}) == len(joined)
    assert 0 < len({target["ts"] for _, target in joined}) <= told["rounds"]
    assert all(trace_rules.span(source)[1] <= trace_rules.span(target)[0] for source, target in joined)


async def test_what_others_did_fills_the_gaps_and_choices_share_a_trace(tiny: Path):
    async with serving(tiny, "npu-lpddr5-pim") as client:
        both = {"sessions": 2}
        ours, theirs = await asyncio.gather(
            traced(client, "tree", "ours", hetspec=both), traced(client, "plain", "theirs", hetspec=both)
        )
        shared = await traced(client, "tree", n=2)
    for told, trace in (ours, theirs, shared):
        assert busy_ns(trace, EMULATED) == told["busy_ns"]
        assert all(block["args"] == {} for block in of_kind(trace, EMULATED, "other"))
    assert of_kind(ours[1], EMULATED, "other")
    assert "theirs" not in str(ours[1])
    assert not of_kind(shared[1], EMULATED, "other")
    assert 2 in {len(block["args"]["choices"]) for block in of_kind(shared[1], EMULATED, "verify")}


def _round(block: Any) -> str:
    (cause,) = block["args"]["cause"]
    return str(cause).partition(":")[0]


async def test_a_trace_is_for_the_key_that_asked_for_the_request(connect):
    async with connect(FakeEngine(says("hello")), **with_keys(ALICE, BOB)) as client:
        for key in (ALICE, BOB):
            headers = bearer(key) | {"x-request-id": f"of-{key}"}
            assert (await client.post(CHAT, json=HELLO, headers=headers)).status_code == 200
        path = f"/v1/hetspec/traces/of-{ALICE}"
        assert (await client.get(path, headers=bearer(ALICE))).status_code == 200
        refused = await client.get(path, headers=bearer(BOB))
        unknown = await client.get("/v1/hetspec/traces/never", headers=bearer(BOB))
    for answer in (refused, unknown):
        assert answer.status_code == 404
        error = answer.json()["error"]
        assert (error["code"], error["param"], error["type"]) == (
            "request_not_found", "request_id", "invalid_request_error"
        )  # fmt: skip


@pytest.mark.parametrize(("settings", "kept"), [({"kept_requests": 1}, [404, 200]), ({"kept_requests": 0}, [404, 404])])
async def test_only_the_newest_requests_are_kept(connect, settings, kept):
    async with connect(FakeEngine(says("hello")), **settings) as client:
        for name in ("older", "newer"):
            await client.post(CHAT, json=HELLO, headers={"x-request-id": name})
        answers = [await client.get(f"/v1/hetspec/traces/{name}") for name in ("older", "newer")]
    assert [answer.status_code for answer in answers] == kept
