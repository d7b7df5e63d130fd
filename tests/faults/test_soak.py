"""Random faults of every kind under a stream of requests: none is lost, no token differs, nothing is left behind."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from tests.acceptance_artefact import make_acceptance
from tests.faults.chaos import Chaos
from tests.faults.cluster import Cluster, open_handles
from tests.faults.traffic import Traffic, pipelines
from tests.system import Ask, Setup, System

MODES = ("plain", "chain", "tree", "lever")
AT_ONCE = 6
TOKENS = 100


def asks() -> list[Ask]:
    """Plain ones: what all modes must say."""
    prompts = (tuple(range(30, 110)), (7,), tuple(range(40, 60)) * 2, tuple(range(100, 300)))
    return [
        Ask(prompt, "plain", TOKENS, temperature, seed=number)
        for number, prompt in enumerate(prompts)
        for temperature in (0.0, 0.8)
    ]


async def undisturbed(setup: Setup) -> dict[Ask, list[int]]:
    """What every ask must say, in every mode; one after another of another kind."""
    async with System(setup) as system:
        answers = await system.generate_all(asks(), AT_ONCE)
    expected = [
        (each, answer.tokens)
        for ask, answer in zip(asks(), answers, strict=True)
        for each in (*(replace(ask, mode=mode) for mode in MODES), *pipelines(ask))
    ]
    random.Random(0).shuffle(expected)
    return dict(expected)


async def handles(cluster: Cluster) -> dict[str, Counter[str]]:
    """Open files and connections of every process, this one among them."""
    return {"test": open_handles(os.getpid())} | {name: member.handles() for name, member in cluster.members.items()}


async def settled(cluster: Cluster) -> dict[str, Counter[str]]:
    """Handles, once they stay the same: a link that a busy moment cost is missing, and would be one more afterwards."""
    while True:
        await cluster.until_whole()
        await cluster.until_nothing_is_held()
        now = await handles(cluster)
        await asyncio.sleep(0.5)
        if now == await handles(cluster):
            return now


async def leaked(cluster: Cluster, before: dict[str, Counter[str]]) -> dict[str, Counter[str]]:
    """What was not open before. Waits for connections to be given up at their other ends."""
    deadline = time.monotonic() + 90
    while True:
        more = {name: now - before[name] for name, now in (await handles(cluster)).items()}
        if not any(more.values()) or time.monotonic() > deadline:
            return more
        await asyncio.sleep(0.2)


@pytest.mark.parametrize(
    ("faults", "seed", "drafters"),
    [(6, 2, 2), pytest.param(200, 1, 3, marks=[pytest.mark.soak, pytest.mark.timeout(0)])],
)
async def test_random_faults_lose_no_request_change_no_token_and_leave_nothing(
    faults: int,
    seed: int,
    drafters: int,
    tiny: Path,
    cache_dir: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The first verifier streams half its layers over the wire."""
    head = make_acceptance(tmp_path / "head", tiny, tiny, cache_dir)
    setup = Setup(tiny, cache_dir, draft=tiny, dram_budget="50%", chunk_tokens=64, acceptance=head)
    expected = await undisturbed(setup)
    gc.collect()  # what is left of the undisturbed system; later it would hold up the proxies, and links be given up
    counts = {"verifier": 2, "drafter": drafters, "sampler": 2}
    async with Cluster(setup, tmp_path, counts, remote=["verifier 1"]) as cluster:
        warm_up = Traffic(cluster.engine, expected, AT_ONCE)
        async with warm_up.running():
            await asyncio.sleep(1)
        before = await settled(cluster)

        traffic = Traffic(cluster.engine, expected, AT_ONCE)
        began = time.monotonic()
        async with traffic.running():
            report = await Chaos(cluster, traffic, seed).strike(faults)
        took_s = time.monotonic() - began
        await cluster.until_whole()
        await cluster.until_nothing_is_held()
        more = await leaked(cluster, before)
    with capsys.disabled():
        print(f"\n{report.table()}\n{traffic.told()}, {took_s:.0f} s")
    assert traffic.lost == []
    assert traffic.differing == []
    assert not any(more.values()), more
    assert sum(report.counts.values()) == faults
