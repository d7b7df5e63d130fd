"""What the orchestrator counts, over real links to fake units: judged by the answers and by what the units saw."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from hetspec.rpc.contracts import VERIFY
from orchestrator.api.admission import Admission
from orchestrator.api.app import create_app
from orchestrator.config import OrchestratorSettings
from tests.fakes import FakeUnit, FakeVerifier, Fault, RandomChaos, World, fast_settings

PROMPT = list(range(2, 12))
Samples = dict[tuple[str, ...], float]


@asynccontextmanager
async def serving(world: World) -> AsyncIterator[httpx.AsyncClient]:
    async with world:
        settings = OrchestratorSettings()
        app = create_app(world.engine, settings, Admission(8, 8), world.registry)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test", timeout=60) as client:
            yield client


async def ask(client: httpx.AsyncClient, mode: str, **fields: Any) -> dict[str, Any]:
    body = {"prompt": PROMPT, "max_tokens": 12, "seed": 3, "temperature": 0.7, "hetspec": {"mode": mode}} | fields
    answer = await client.post("/v1/completions", json=body)
    told: dict[str, Any] = answer.raise_for_status().json()
    return told


async def scrape(client: httpx.AsyncClient) -> Samples:
    """By name and label values."""
    text = (await client.get("/metrics")).text
    families = text_string_to_metric_families(text)
    return {(s.name, *sorted(s.labels.values())): s.value for family in families for s in family.samples}


@pytest.mark.parametrize("mode", ["plain", "chain", "tree"])
async def test_counters_are_the_sums_of_the_answers_statistics(mode: str) -> None:
    async with serving(World()) as client:
        answers = [(await ask(client, mode, seed=seed)) for seed in range(4)]
        told = await scrape(client)
    statistics = [answer["hetspec"] for answer in answers]
    for name in ("drafted", "verified", "accepted"):
        assert told[f"hetspec_{name}_tokens_total", mode] == sum(each[name] for each in statistics)
    assert told["hetspec_rounds_total", mode] == sum(each["rounds"] for each in statistics)
    assert told["hetspec_generated_tokens_total", mode] == sum(each["emitted"] for each in statistics)
    for name in ("drafted", "accepted"):
        nodes = {key[1]: value for key, value in told.items() if key[0] == f"hetspec_{name}_nodes_total"}
        depths = range(max(len(each[f"{name}_by_depth"]) for each in statistics))
        assert nodes == {
            str(depth + 1): sum((each[f"{name}_by_depth"] + [0] * 16)[depth] for each in statistics) for depth in depths
        }
        assert sum(nodes.values()) == sum(each[name] for each in statistics)
        sources = {key[1]: value for key, value in told.items() if key[0] == f"hetspec_{name}_by_source_total"}
        assert sources == ({} if mode == "plain" else {"lookup": sum(nodes.values())})


async def test_no_node_is_accepted_that_was_not_drafted_at_its_depth() -> None:
    async with serving(World()) as client:
        statistics = (await ask(client, "tree", max_tokens=40))["hetspec"]
    drafted, accepted = statistics["drafted_by_depth"], statistics["accepted_by_depth"]
    assert accepted == sorted(accepted, reverse=True)  # a walk that reaches a depth has passed those above it
    assert all(a <= min(d, statistics["rounds"]) for a, d in zip(accepted, drafted, strict=False))
    assert 0 < sum(accepted) == statistics["accepted"]


async def test_a_plain_answer_has_a_time_for_each_token_and_round() -> None:
    async with serving(World()) as client:
        answer = await ask(client, "plain", max_tokens=10)
        told = await scrape(client)
    emitted = answer["hetspec"]["emitted"]
    assert told["hetspec_time_to_first_token_seconds_count", "completions", "plain"] == 1
    assert told["hetspec_inter_token_seconds_count", "plain"] == emitted - 1
    assert told["hetspec_round_seconds_count", "plain"] == answer["hetspec"]["rounds"] == emitted
    assert told["hetspec_admission_wait_seconds_count", "completions"] == 1
    spent_s = told["hetspec_request_seconds_sum", "completions", "plain"]
    first_s = told["hetspec_time_to_first_token_seconds_sum", "completions", "plain"]
    assert first_s + told["hetspec_inter_token_seconds_sum", "plain"] <= spent_s


async def test_counters_move_while_a_stream_goes_on() -> None:
    async with serving(World()) as client:
        body = {"prompt": PROMPT, "max_tokens": 40, "hetspec": {"mode": "plain"}, "stream": True}
        seen = 0.0
        async with client.stream("POST", "/v1/completions", json=body) as answer:
            async for line in answer.aiter_lines():
                if line.startswith("data: {") and json.loads(line[6:])["choices"][0]["finish_reason"] is None:
                    seen = max(seen, (await scrape(client)).get(("hetspec_rounds_total", "plain"), 0.0))
    assert seen > 0


async def test_faults_are_counted_by_unit_and_reason_and_rebuilds_with_them() -> None:
    chaos = RandomChaos(1, 0.3, [Fault.LOST])
    world = World(verifiers=[FakeUnit(VERIFY, FakeVerifier, chaos)], settings=fast_settings(max_rebuilds=50))
    async with serving(world) as client:
        await ask(client, "plain", max_tokens=30)
        told = await scrape(client)
    faults = told["hetspec_unit_faults_total", "session_lost", "verifier"]
    assert 0 < faults <= chaos.faults  # one that struck before the first token lost nothing
    assert told[("hetspec_rebuilds_total",)] == faults


async def test_passes_are_those_the_units_saw() -> None:
    world = World()
    async with serving(world) as client:
        await ask(client, "tree", max_tokens=30)
        told = await scrape(client)
        for unit in world.units:
            name = unit.contract.unit
            assert told["hetspec_pass_items_count", name] == len(unit.engine.passes)
            assert told["hetspec_pass_items_sum", name] == sum(unit.engine.passes)
            assert told["hetspec_pass_seconds_count", name] == len(unit.engine.passes)
            assert told["hetspec_pass_wait_seconds_count", name] == sum(unit.engine.passes)
            assert (told["hetspec_replicas", name], told["hetspec_replicas_found_total", name]) == (1, 1)


async def test_a_replica_that_is_killed_and_comes_back_was_lost_once_and_found_twice() -> None:
    world = World()
    async with serving(world) as client:
        await world.samplers[0].kill()
        await world.until(lambda: not world.engine.ready()["sampler"])
        assert (await scrape(client))["hetspec_replicas", "sampler"] == 0
        await world.samplers[0].start()
        await world.until(lambda: world.engine.ready()["sampler"])
        told = await scrape(client)
    assert told["hetspec_replicas", "sampler"] == 1
    assert told["hetspec_replicas_lost_total", "sampler"] == 1
    assert told["hetspec_replicas_found_total", "sampler"] == 2
