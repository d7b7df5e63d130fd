"""What the API tells of an emulated clock: with an answer, and afterwards."""

from __future__ import annotations

import asyncio
import json
import random
import re
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from hetspec.hardware.cost import Component, Cost
from hetspec.hardware.cost_as import parse_cost_as
from hetspec.hardware.energy import static_pj
from hetspec.hardware.measured import KvTable, Measured, RowsTable
from hetspec.hardware.profile import MeasuredHost, load_profile
from hetspec.model.checkpoint import open_checkpoint
from hetspec_client.commands.explain import _tables
from hetspec_client.commands.numbers import numbers_behind
from orchestrator.api.admission import Admission
from orchestrator.api.app import create_app
from orchestrator.clock.hardware import Hardware
from orchestrator.clock.settings import WorldSettings
from orchestrator.config import OrchestratorSettings
from tests.contract.running import serve
from tests.models import make_checkpoint
from tests.system import Setup, System

BODY = {"prompt": list(range(30, 110)), "max_tokens": 24, "temperature": 0}


@pytest.fixture(scope="module")
def setup(tmp_path_factory: pytest.TempPathFactory) -> Setup:
    folder = tmp_path_factory.mktemp("emulated")
    tiny = make_checkpoint(folder / "tiny", "qwen3", num_hidden_layers=2)
    world = WorldSettings(load_profile("oneplus12"), parse_cost_as("llama2-7b:int4+llama3.2-1b:int4"))
    return Setup(tiny, folder, draft=tiny, world=world)


@pytest.fixture
async def client(setup: Setup) -> AsyncIterator[httpx.AsyncClient]:
    async with System(setup) as system:
        settings = OrchestratorSettings(min_gain=0)
        app = create_app(system.engine, settings, Admission(settings.max_running, settings.max_queued))
        transport = httpx.ASGITransport(app)  # type: ignore[arg-type]
        async with httpx.AsyncClient(transport=transport, base_url="http://server", timeout=60) as client:
            yield client


async def test_answer_tells_time_and_energy_that_add_up(client: httpx.AsyncClient) -> None:
    told = {}
    for mode in ("plain", "tree"):
        answer = (await client.post("/v1/completions", json={**BODY, "hetspec": {"mode": mode}})).json()
        told[mode] = answer["hetspec"]
    for one in told.values():
        assert (one["clock"], one["hardware"]) == ("emulated", "oneplus12")
        assert one["cost_as"] == "llama2-7b:int4+llama3.2-1b:int4"
        times = [ns for by_part in one["emulated_ns"].values() for ns in by_part.values()]
        assert sum(times) == one["emulated_total_ns"]
        energies = [pj for by_part in one["energy_pj"].values() for pj in by_part.values()]
        assert sum(energies) == one["energy_total_pj"]
        for device, busy_ns in one["busy_ns"].items():
            assert busy_ns + one["idle_ns"][device] == one["emulated_total_ns"]
        assert 0 < one["emulated_first_token_ns"] <= one["emulated_total_ns"]
    plain_ns = told["plain"]["plain_emulated_total_ns"]
    for one in told.values():
        assert one["emulated_token_ns"][::23] == [one["emulated_first_token_ns"], one["emulated_total_ns"]]
        assert one["emulated_token_ns"] == sorted(one["emulated_token_ns"])
    assert plain_ns == told["plain"]["emulated_total_ns"] == told["tree"]["plain_emulated_total_ns"]


@pytest.mark.parametrize("stream", [False, True])
async def test_request_is_explained_task_by_task_and_sums_to_its_total(client: httpx.AsyncClient, stream: bool) -> None:
    body = {**BODY, "n": 2, "stream": stream, "hetspec": {"mode": "tree"}}
    answer = await client.post("/v1/completions", json=body, headers={"x-request-id": "mine"})
    assert answer.status_code == 200
    told = (await client.get("/v1/hetspec/requests/mine")).json()
    assert [choice["index"] for choice in told["choices"]] == [0, 1]
    for choice in told["choices"]:
        spent = sum(task["waited_ns"] + sum(task["time_ns"].values()) for task in choice["tasks"])
        assert spent + choice["waited_ns"] + choice["overlapped_ns"] == choice["total_ns"]
        assert all(task["end_ns"] - task["start_ns"] == sum(task["time_ns"].values()) for task in choice["tasks"])
        assert len(choice["token_ns"]) == 24
        times, energies = _tables(choice)
        _check_numbers(choice["tasks"])
        assert times[-1][-1] == f"{choice['total_ns'] / 1e6:.3f}"
        total_pj = sum(pj for by_part in choice["energy_pj"].values() for pj in by_part.values())
        assert energies[-1][-1] == f"{total_pj / 1e9:.3f}"
    tasks = [task for choice in told["choices"] for task in choice["tasks"] if task["role"] == "sampler"]
    walks = {task["start_ns"]: task["head_rows"] for task in tasks}
    assert sum(walks.values()) == 2 * 24  # one a token: a lazy walk projects no other


def _check_numbers(tasks: list[dict[str, Any]]) -> None:
    """Lines of components sum to the task; those below them name the profile's rates."""
    lines = [*numbers_behind(tasks)]
    totals = [float(found[1]) for line in lines if (found := re.match(r"\nround .*: ([\d.]+) ms", line))]
    parts = [float(found[1]) for line in lines if (found := re.match(r"  \w+: ([\d.]+) ms", line))]
    assert len(totals) == len(tasks)
    assert sum(parts) == pytest.approx(sum(totals), abs=1e-9)
    text = "\n".join(lines)
    for rate in ("45 Top/s", "45 GB/s", "4.2 GB/s", "graphs, "):
        assert rate in text


async def test_request_that_is_not_kept_is_not_found(client: httpx.AsyncClient) -> None:
    answer = await client.get("/v1/hetspec/requests/never")
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "request_not_found"
    assert answer.json()["error"]["param"] == "request_id"


async def test_closed_workload_begins_when_all_of_it_is_there(client: httpx.AsyncClient) -> None:
    """Two requests that announce three choices wait for the third."""

    def ask(arrival_ns: int) -> asyncio.Task[httpx.Response]:
        options = {"mode": "plain", "arrival_ns": arrival_ns, "sessions": 3}
        return asyncio.create_task(client.post("/v1/completions", json={**BODY, "hetspec": options}))

    async def total_ns(tasks: list[asyncio.Task[httpx.Response]]) -> list[int]:
        return [(await task).json()["hetspec"]["emulated_total_ns"] for task in tasks]

    first = [ask(0), ask(10**6)]
    await asyncio.sleep(0.3)
    assert not any(task.done() for task in first)
    times = await total_ns([*first, ask(2 * 10**6)])
    again = await total_ns([ask(arrival_ns) for arrival_ns in (0, 10**6, 2 * 10**6)])
    assert times == again


def workload(chance: random.Random) -> list[dict[str, Any]]:
    """Requests that come one after another, many of which begin alike."""
    bodies = [
        {
            "prompt": [[*range(30, 30 + chance.choice((8, 90))), chance.randrange(9)] for _ in range(prompts)],
            "n": chance.randint(1, 3),
            "max_tokens": chance.randint(1, 10),
            "temperature": chance.choice((0, 0.8)),
            "seed": chance.randrange(99),
            "ignore_eos": True,
            "hetspec": {"mode": chance.choice(("plain", "lever", "ahasd")), "arrival_ns": chance.randrange(10**9)},
        }
        for prompts in (1, 1, 2)
    ]
    sessions = sum(len(body["prompt"]) * body["n"] for body in bodies)
    return [{**body, "hetspec": {**body["hetspec"], "sessions": sessions}} for body in bodies]


def note_costs(hardware: Hardware, patch: pytest.MonkeyPatch) -> dict[tuple[str, int], Cost]:
    """Of every task, by its device and beginning; cut ones as they ended."""
    noted, begin, cut = dict[tuple[str, int], Cost](), hardware.begin, hardware.cut

    def noting_begin(work: Any, start_ns: int) -> Cost:
        cost = begin(work, start_ns)
        return noted.setdefault((cost.device, start_ns), cost)

    def noting_cut(cost: Cost, start_ns: int, now_ns: int) -> Cost:
        noted[cost.device, start_ns] = cut(cost, start_ns, now_ns)
        return noted[cost.device, start_ns]

    patch.setattr(hardware, "begin", noting_begin)
    patch.setattr(hardware, "cut", noting_cut)
    return noted


def check_time(told: dict[str, Any], devices: set[str]) -> None:
    """It sums, and every part of it has a name and the sign of that name."""
    parts = {(device, part): ns for device, by_part in told["emulated_ns"].items() for part, ns in by_part.items()}
    assert sum(parts.values()) == told["emulated_total_ns"]
    named = {(device, part) for device in devices for part in [*map(str, Component), "waited"]}
    assert parts.keys() <= named | {("request", "waited"), ("request", "overlapped")}
    assert all((ns < 0) == (part == ("request", "overlapped")) for part, ns in parts.items())


@pytest.mark.parametrize("seed", range(4))
async def test_whatever_is_asked_at_once_time_and_energy_of_each_answer_add_up(
    setup: Setup, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    hardware = chance.choice(("oneplus12", "phone-flash-pim"))
    world = WorldSettings(load_profile(hardware), parse_cost_as("llama2-7b:int4+llama3.2-1b:int4"))
    async with System(replace(setup, world=world)) as system, serve(system.engine) as running:
        emulated = system.engine.world
        assert emulated is not None
        noted = note_costs(emulated.hardware, monkeypatch)
        posts = [running.client.post("/v1/completions", json=body) for body in workload(chance)]
        answers = [(await post).json()["hetspec"] for post in [asyncio.create_task(post) for post in posts]]
        drawn, told = Counter[str](), Counter(emulated.unowned_pj)
        for device, power_uw in emulated.hardware.static_uw.items():
            drawn[device] += static_pj(power_uw, 0, emulated._charged_ns)
    for cost in noted.values():
        for use in cost.uses:
            drawn[use.device] += use.energy_pj
    for answer in answers:
        for one in [answer, *answer.get("choices", [])]:
            check_time(one, set(emulated.hardware.static_uw))
            assert sum(sum(parts.values()) for parts in one["energy_pj"].values()) == one["energy_total_pj"]
        told.update({device: sum(parts.values()) for device, parts in answer["energy_pj"].items()})
    assert told == drawn


MEASURED_KV = 100


def measured_host(target: Path) -> MeasuredHost:
    table = KvTable(rows=[1, 512], kv=[1, MEASURED_KV], ms=[[10.0, 20.0], [30.0, 40.0]])
    name = open_checkpoint(target).config.name
    measured = Measured(
        machine="a machine", threads=1, precision="int8", date="2026-11-30", target=name, draft=name,
        verify=table, draft_read=table, draft_step=table, head=RowsTable(rows=[1, 512], ms=[4.0, 9.0]),
    )  # fmt: skip
    return MeasuredHost(name="desk", about="a machine", device="host", measured=measured)


async def test_what_goes_beyond_a_measured_machines_table_is_refused_and_what_just_fits_is_priced(setup: Setup) -> None:
    asked = [(99, 1, None), (60, 40, None), (100, 1, "prompt"), (100, None, "prompt"), (60, 41, "max_tokens")]
    world = WorldSettings(measured_host(setup.target))
    async with System(replace(setup, world=world)) as system, serve(system.engine) as running:
        for prompt, max_tokens, refused in asked:
            for mode in ("plain", "lever", "ahasd"):
                body = {"prompt": [*range(prompt)], "max_tokens": max_tokens, "hetspec": {"mode": mode}}
                answer = await running.client.post("/v1/completions", json={**body, "ignore_eos": True})
                if refused is None:
                    assert answer.json()["usage"]["completion_tokens"] == max_tokens
                    continue
                error = answer.json()["error"]
                assert (answer.status_code, error["param"]) == (400, refused)
                assert "context of 100, where the measurements of hardware 'desk' end" in error["message"]
        (model,) = (await running.client.get("/v1/models")).json()["data"]
        assert model["max_model_len"] == MEASURED_KV


PACE = 8.0  # emulated seconds a second
_SLACK_S = 0.005  # or 2 %, beside what the server says it lags


@pytest.mark.parametrize("bound", ["never early", pytest.param("nor late", marks=pytest.mark.soak)])
async def test_paced_tokens_come_when_they_are_due(setup: Setup, bound: str) -> None:
    """Over HTTP, as a client sees them. That none is late takes a machine with nothing else to do."""
    assert setup.world is not None
    async with System(replace(setup, world=replace(setup.world, pace=PACE))) as system, serve(system.engine) as running:
        come_s, lag_s = await _arrivals(running.client)
        told = (await running.client.get("/v1/hetspec/requests/paced")).json()
    (choice,) = told["choices"]
    due_s = [ns / 1e9 / PACE for ns in choice["token_ns"]]
    late_s = [come - due for come, due in zip(come_s, due_s, strict=True)]
    assert len(late_s) == 8
    assert due_s[-1] > 0.1
    if bound == "never early":
        assert min(late_s) >= 0
    else:
        bounds_s = [max(_SLACK_S, 0.02 * due) + lag_s for due in due_s]
        assert all(late - late_s[0] <= most for late, most in zip(late_s, bounds_s, strict=True))


async def _arrivals(client: httpx.AsyncClient) -> tuple[list[float], float]:
    """When each token came, in seconds since the request was sent; and the lag that is told."""
    body = {**BODY, "max_tokens": 8, "ignore_eos": True, "stream": True, "logprobs": 1, "hetspec": {"mode": "plain"}}
    begun, come, lag_s = time.perf_counter(), list[float](), 0.0
    headers = {"x-request-id": "paced"}
    async with client.stream("POST", "/v1/completions", json=body, headers=headers) as response:
        async for line in response.aiter_lines():
            chunk = json.loads(line.removeprefix("data: ")) if line.startswith("data: {") else {}
            for choice in chunk.get("choices", []):
                come += [time.perf_counter() - begun] * len((choice["logprobs"] or {"tokens": []})["tokens"])
            lag_s = (chunk.get("hetspec") or {}).get("lag_ns", 0) / 1e9 / PACE or lag_s
    return come, lag_s
