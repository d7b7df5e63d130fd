"""Profiles and loads of all five services, as processes under work: what is told over HTTP, gRPC and by the command."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import httpx
import pytest
import pytest_asyncio

from hetspec.hardware.work import ROWS_TOGETHER
from hetspec.rpc.channel import open_channel
from hetspec.v1 import profiler_pb2, profiler_pb2_grpc
from hetspec_client.observe.profile import Profile
from tests.clients.command import COMMAND, environ
from tests.models import make_checkpoint
from tests.system import SERVICES, Processes, Setup

pytestmark = pytest.mark.asyncio(loop_scope="module")
LAYERS = 4
ASK = {"prompt": list(range(20, 60)), "max_tokens": 64, "ignore_eos": True, "hetspec": {"mode": "tree"}}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def system(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Processes]:
    """A target and a draft of the same make, so that the drafter has native passes of its own."""
    folder = tmp_path_factory.mktemp("observed")
    target = make_checkpoint(tmp_path_factory.mktemp("target"), "qwen3", num_hidden_layers=LAYERS)
    draft = make_checkpoint(tmp_path_factory.mktemp("draft"), "qwen3", num_hidden_layers=1)
    async with Processes(Setup(target, folder, draft=draft), folder) as running:
        yield running


@asynccontextmanager
async def under_work(system: Processes) -> AsyncIterator[None]:
    """Two clients, one request after the other."""

    async def client() -> None:
        while True:
            await system.stream(ASK)

    clients = [asyncio.create_task(client()) for _ in range(2)]
    try:
        await asyncio.sleep(0.5)
        assert not any(client.done() for client in clients)
        yield
    finally:
        for task in clients:
            task.cancel()
        await asyncio.gather(*clients, return_exceptions=True)


async def post(system: Processes, body: dict[str, Any]) -> httpx.Response:
    async with httpx.AsyncClient(base_url=system.url, timeout=90) as client:
        return await client.post("/v1/hetspec/profile", json=body)


async def profile(system: Processes, unit: str, **body: Any) -> Profile:
    answer = await post(system, {"unit": unit, "seconds": 1, **body})
    assert answer.status_code == 200, answer.text
    return Profile.parse(answer.json())


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def profiles(system: Processes) -> dict[str, Profile]:
    """Of every service, each taken while it works."""
    async with under_work(system):
        return {unit: await profile(system, unit) for unit in SERVICES}


async def units(system: Processes) -> dict[str, dict[str, Any]]:
    async with httpx.AsyncClient(base_url=system.url, timeout=20) as client:
        return {service["unit"]: service for service in (await client.get("/v1/hetspec/units")).json()["data"]}


@pytest.mark.parametrize("unit", SERVICES)
async def test_every_service_can_be_profiled_while_it_works(profiles: dict[str, Profile], unit: str) -> None:
    told = profiles[unit]
    assert (told.service.unit, told.service.replica, told.service.problem) == (unit, 0, None)
    assert (told.sampler, told.note) == ("py-spy", "")
    assert told.window_s >= 1
    if unit != "weight_store":  # which has nothing to do once its weights are mapped
        assert told.samples > 0
        assert told.metrics


@pytest.mark.parametrize("unit", ["verifier", "drafter", "sampler"])
async def test_tasks_told_one_by_one_are_those_that_were_counted(profiles: dict[str, Profile], unit: str) -> None:
    told = profiles[unit]
    assert told.tasks
    assert told.tasks_dropped == 0
    assert len(told.tasks) == told.grown("hetspec_tasks_total") == told.grown("hetspec_queue_wait_seconds_count")
    assert sum(t.compute_ns for t in told.tasks) == pytest.approx(told.grown("hetspec_unit_busy_seconds_total") * 1e9)
    assert sum(t.queue_ns for t in told.tasks) == pytest.approx(told.grown("hetspec_queue_wait_seconds_sum") * 1e9)
    assert sum(t.rows for t in told.tasks) == told.grown("hetspec_task_rows_sum")
    assert sum(t.bytes_in for t in told.tasks) == told.grown("hetspec_unit_received_bytes_total")
    assert sum(t.bytes_out for t in told.tasks) == told.grown("hetspec_unit_sent_bytes_total")
    ends = [told.start_ns, *(task.start_ns + task.compute_ns for task in told.tasks)]
    assert all(end <= task.start_ns for end, task in zip(ends, told.tasks, strict=False))
    assert ends[-1] <= told.end_ns


async def test_operators_of_a_verifier_ran_once_a_layer_and_task(profiles: dict[str, Profile]) -> None:
    told = profiles["verifier"]
    assert {task.outcome for task in told.tasks} == {"ok"}
    assert {operator.calls for operator in told.operators} == {LAYERS * len(told.tasks)}
    assert {operator.rows for operator in told.operators} == {LAYERS * sum(task.rows for task in told.tasks)}
    spent_ns, computed_ns = sum(o.ns for o in told.operators), sum(task.compute_ns for task in told.tasks)
    assert 0 < spent_ns < computed_ns


async def test_drafter_and_sampler_tell_of_their_heads(profiles: dict[str, Profile]) -> None:
    drafter, sampler = profiles["drafter"], profiles["sampler"]
    assert {operator.group for operator in drafter.operators} == {"layers", "head"}
    assert {operator.group for operator in sampler.operators} == {"head"}
    (head,) = (operator for operator in sampler.operators if operator.name == "head")
    assert sum(task.rows for task in sampler.tasks) <= head.rows <= ROWS_TOGETHER * head.calls


async def test_a_profile_is_taken_of_the_replica_that_is_named(system: Processes, profiles: dict[str, Profile]) -> None:
    address = system.addresses.sampler
    assert profiles["sampler"].service.address == address  # where none is
    for replica in (address, 0):
        assert (await profile(system, "sampler", replica=replica)).service.address == address


async def test_loads_are_what_the_units_describe(system: Processes) -> None:
    await system.until_nothing_is_held()
    told = await units(system)
    assert [*told] == ["orchestrator", "weight_store", "verifier", "drafter", "sampler"]
    for unit in ("verifier", "drafter", "sampler"):
        described, service = await system.describe(unit), told[unit]
        for field in ("busy_seconds", "tasks", "rows", "running", "queued"):
            assert service[field] == getattr(described.load, field), field
        for field in ("instance", "model", "precision", "digest", "threads"):
            assert service[field] == getattr(described.identity, field), field
        for field in ("sessions", "kv_held_tokens", "kv_capacity_tokens"):
            held = getattr(described, field) if field in described.DESCRIPTOR.fields_by_name else None
            assert service[field] == held, field
        assert 0 < service["uptime_seconds"] <= described.load.uptime_seconds
    assert told["weight_store"]["leases"] == 3  # a head, layers, and the draft


async def test_the_orchestrator_counts_the_tokens_it_answered(system: Processes) -> None:
    before = (await units(system))["orchestrator"]
    chunks = await system.stream(ASK | {"stream_options": {"include_usage": True}})
    after = (await units(system))["orchestrator"]
    assert after["generated_tokens"] - before["generated_tokens"] == chunks[-1]["usage"]["completion_tokens"]
    assert after["tasks"] - before["tasks"] == 1
    statistics = chunks[-1]["hetspec"]
    for field in ("verified", "accepted"):
        assert after[f"{field}_tokens"] - before[f"{field}_tokens"] == statistics[field]


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        ({"unit": "gpu"}, 400, "unit"),
        ({}, 400, "unit"),
        ({"unit": "verifier", "seconds": 0}, 400, "seconds"),
        ({"unit": "verifier", "seconds": 61}, 400, "seconds"),
        ({"unit": "verifier", "seconds": 1.5}, 400, "seconds"),
        ({"unit": "verifier", "replica": True}, 400, "replica"),
        ({"unit": "verifier", "replica": -1}, 400, "replica"),
        ({"unit": "verifier", "replica": 1}, 404, "replica"),
        ({"unit": "verifier", "replica": "127.0.0.1:1"}, 404, "replica"),
        ({"unit": "orchestrator", "replica": "127.0.0.1:1"}, 404, "replica"),
        ({"unit": "verifier", "rate": 5}, 400, "rate"),
    ],
)
async def test_what_cannot_be_profiled_is_refused_by_name(
    system: Processes, body: dict[str, Any], status: int, param: str
) -> None:
    answer = await post(system, body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (status, param)
    assert answer.json()["error"]["message"].startswith(param)


async def test_a_second_profile_of_a_service_is_refused_and_harms_nothing(system: Processes) -> None:
    for unit in ("verifier", "orchestrator"):
        first = asyncio.create_task(post(system, {"unit": unit, "seconds": 1}))
        await asyncio.sleep(0.5)
        second = await post(system, {"unit": unit, "seconds": 1})
        assert (second.status_code, second.json()["error"]["code"]) == (409, "profile_running")
        assert (await first).status_code == 200


async def test_over_grpc_seconds_out_of_range_are_refused(system: Processes) -> None:
    async with open_channel(system.addresses.verifier) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await profiler_pb2_grpc.ProfilerStub(channel).Profile(profiler_pb2.ProfileRequest(seconds=0))
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert refused.value.details() == "seconds = 0, must be in [1, 60]"


async def command(system: Processes, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    run = [*COMMAND, *arguments]
    return await asyncio.to_thread(subprocess.run, run, env=environ(system.url), capture_output=True, timeout=90)


async def test_the_command_writes_files_and_prints_tables(system: Processes, tmp_path: Path) -> None:
    async with under_work(system):
        done = await command(system, "profile", "verifier", "--seconds", "3", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    for title in ("Operators", "Time by task", "Queue wait", "Bytes moved"):
        assert title in done.stdout.decode()
    assert (tmp_path / "verifier-0.svg").read_text().startswith("<svg")
    written = json.loads((tmp_path / "verifier-0.speedscope.json").read_text())
    assert "[attention]" in {frame["name"] for frame in written["shared"]["frames"]}
    assert any(
        event["ph"] == "X" for event in json.loads((tmp_path / "verifier-0.trace.json").read_text())["traceEvents"]
    )


async def test_the_command_shows_every_service_once(system: Processes) -> None:
    done = await command(system, "top", "--once", "--interval", "0.2")
    assert done.returncode == 0, done.stderr
    for name in SERVICES:
        assert name in done.stdout.decode()
    told = json.loads((await command(system, "top", "--json", "--interval", "0.2")).stdout)
    assert {service["unit"] for service in told} == set(SERVICES)
    assert all(0 <= service["busy_share"] <= 1.5 for service in told)


async def test_the_command_fails_with_one_line_that_names_the_field(system: Processes) -> None:
    done = await command(system, "profile", "verifier", "--replica", "7")
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.decode().startswith("hetspec: replica: there is no verifier 7; there is 127.0.0.1:")


async def test_a_frozen_unit_is_shown_as_silent_and_cannot_be_profiled(system: Processes) -> None:
    system.signal("drafter", signal.SIGSTOP)
    try:
        assert (await units(system))["drafter"]["problem"] in ("does not answer", "cannot be reached")
        answer = await post(system, {"unit": "drafter"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "unit_unavailable")
    finally:
        system.signal("drafter", signal.SIGCONT)
    await system.settle()
