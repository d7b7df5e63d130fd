"""Prometheus itself scrapes all services, and answers with their own numbers: those of `hetspec top`."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from tests.observe.scrape import Prometheus, prometheus, samples_of, scrape
from tests.system import SERVICES, Processes, until_async

BINARY, PROMTOOL = shutil.which("prometheus"), shutil.which("promtool")

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.skipif(BINARY is None or PROMTOOL is None, reason="prometheus and promtool are not installed"),
]


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def running(processes: Processes, answers: list[dict[str, Any]], folder: Path) -> AsyncIterator[Prometheus]:
    """One that has read all services since their last request ended."""
    assert BINARY is not None
    async with prometheus(BINARY, processes, folder) as made:

        async def has_all() -> bool:
            return len(await made.query('up{job="hetspec"} == 1')) == len(SERVICES)

        await until_async(has_all, 60)
        yield made


@pytest.mark.parametrize("service", SERVICES)
async def test_promtool_finds_no_fault_in_names_and_types(service: str, texts: dict[str, str]) -> None:
    assert PROMTOOL is not None
    check = partial(subprocess.run, [PROMTOOL, "check", "metrics"], capture_output=True, text=True, check=False)
    done = await asyncio.to_thread(check, input=texts[service])
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def texts(processes: Processes, answers: list[dict[str, Any]]) -> dict[str, str]:
    return {service: await scrape(processes, service) for service in SERVICES}


async def test_every_service_is_scraped_under_its_own_name(running: Prometheus) -> None:
    assert await running.query('up{job="hetspec"}') == {(("service", name),): 1 for name in SERVICES}


@pytest.mark.parametrize("service", SERVICES)
async def test_every_number_of_a_service_is_what_prometheus_has(
    running: Prometheus, processes: Processes, service: str
) -> None:
    own = samples_of(await scrape(processes, service))
    assert len(own) > 5
    assert await running.samples(service) == own


async def test_promql_sums_to_the_answers(running: Prometheus, answers: list[dict[str, Any]]) -> None:
    told = [answer["hetspec"] for answer in answers]
    for name, counter in (("emitted", "generated"), ("drafted", "drafted"), ("accepted", "accepted")):
        expected = sum(each[name] for each in told)
        assert await running.query(f"sum(hetspec_{counter}_tokens_total)") == {(): expected}
    by_mode = await running.query("sum by (mode) (hetspec_rounds_total)")
    for mode in ("plain", "chain", "tree"):
        assert by_mode[("mode", mode),] == sum(each["rounds"] for each in told if each["mode"] == mode)
    assert await running.query('sum(hetspec_requests_total{outcome=~"stop|length"})') == {(): len(answers)}


async def test_promql_gives_the_numbers_of_hetspec_top(running: Prometheus, processes: Processes) -> None:
    async with httpx.AsyncClient(base_url=processes.url, timeout=30) as client:
        top = {
            state["unit"]: state for state in (await client.get("/v1/hetspec/units")).raise_for_status().json()["data"]
        }
    busy = await running.query("sum by (unit) (hetspec_unit_busy_seconds_total)")
    tasks = await running.query("sum by (unit) (hetspec_tasks_total)")
    rows = await running.query("sum by (unit) (hetspec_task_rows_sum)")
    held = await running.query("sum by (unit) (hetspec_kv_held_tokens)")
    sessions = await running.query("sum by (unit) (hetspec_unit_sessions)")
    for unit in ("verifier", "drafter", "sampler"):
        key = (("unit", unit),)
        assert busy[key] == pytest.approx(top[unit]["busy_seconds"], rel=1e-9)
        assert (tasks[key], rows[key]) == (top[unit]["tasks"], top[unit]["rows"])
        assert tasks[key] > 0
    for unit in ("verifier", "drafter"):
        key = (("unit", unit),)
        assert (held[key], sessions[key]) == (top[unit]["kv_held_tokens"], top[unit]["sessions"])
    for kind in ("generated", "accepted"):
        total = await running.query(f"sum(hetspec_{kind}_tokens_total)")
        assert total == {(): top["orchestrator"][f"{kind}_tokens"]}


async def test_every_rule_is_evaluated_and_no_alert_fires_on_a_sound_system(running: Prometheus) -> None:
    async def evaluated() -> bool:
        return all(rule["health"] == "ok" for rule in await running.rules())

    await until_async(evaluated, 60)
    alerts = [rule for rule in await running.rules() if rule["type"] == "alerting"]
    assert len(alerts) > 3
    assert [rule["name"] for rule in alerts if rule["state"] != "inactive"] == []
