"""Replicas that come and go, and services that lose each other, under running sessions: which move, and which stay."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
import pytest_asyncio

from orchestrator.engine.request import Emission
from tests.faults.cluster import Cluster
from tests.system import Ask, Setup, System, until

pytestmark = pytest.mark.asyncio(loop_scope="module")

TOKENS = 60
MODES = ("plain", "tree", "ahasd", "full")
ASKS = [Ask(tuple(range(30 + n, 90 + n)), MODES[n % 4], TOKENS, 0.8, seed=n) for n in range(4)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tiny: Path, cache_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    """The first verifier streams half its layers over the wire."""
    setup = Setup(tiny, cache_dir, draft=tiny, dram_budget="50%")
    counts = {"verifier": 2, "drafter": 1, "sampler": 1}
    logs = tmp_path_factory.mktemp("logs")
    async with Cluster(setup, logs, counts, remote=["verifier 1"], drain_s=60.0) as started:
        yield started


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def expected(tiny: Path, cache_dir: Path) -> list[list[int]]:
    async with System(Setup(tiny, cache_dir, draft=tiny)) as system:
        return [answer.tokens for answer in await system.generate_all(ASKS)]


class Held:
    """A request that goes on when it is told to, and keeps its places in the units meanwhile."""

    def __init__(self, cluster: Cluster, ask: Ask) -> None:
        self._generation = cluster.engine.generate(ask.request())
        self.tokens: list[int] = []

    async def begin(self) -> None:
        """To its first tokens."""
        self._add(await anext(self._generation))

    async def finish(self) -> list[int]:
        async for emission in self._generation:
            self._add(emission)
        return self.tokens

    async def leave(self) -> None:
        await self._generation.aclose()

    @property
    def rebuilds(self) -> int:
        return self._generation.statistics.rebuilds

    def _add(self, emission: Emission) -> None:
        self.tokens += [token.id for token in emission.tokens]


async def begin(cluster: Cluster, asks: Sequence[Ask] = ASKS) -> list[Held]:
    held = [Held(cluster, ask) for ask in asks]
    for each in held:
        await each.begin()
    return held


async def finish(held: Sequence[Held]) -> list[list[int]]:
    return list(await asyncio.gather(*(each.finish() for each in held)))


async def sessions(cluster: Cluster, name: str) -> int:
    return int((await cluster.describe_member(name)).sessions)


async def come_back(cluster: Cluster, name: str) -> None:
    cluster.start(name)
    await cluster.until_whole()


async def test_a_replica_that_joins_moves_no_session_and_gets_new_ones(
    cluster: Cluster, expected: list[list[int]]
) -> None:
    cluster.members["verifier 2"].kill()
    await until(lambda: cluster.engine.replicas()["verifier"] == 1)
    early = await begin(cluster, ASKS[:3])
    await come_back(cluster, "verifier 2")
    late = await begin(cluster, ASKS[3:])
    assert [await sessions(cluster, f"verifier {number}") for number in (1, 2)] == [3, 1]
    assert await finish([*early, *late]) == expected
    assert [each.rebuilds for each in (*early, *late)] == [0, 0, 0, 0]


async def test_a_replica_told_to_end_keeps_its_sessions_and_gets_no_new_ones(
    cluster: Cluster, expected: list[list[int]]
) -> None:
    leaving = cluster.members["verifier 2"]
    early: list[Held] = []
    there: list[int] = []
    for ask in ASKS:
        before = await sessions(cluster, leaving.name)
        early += await begin(cluster, [ask])
        there += [len(early) - 1] * (await sessions(cluster, leaving.name) - before)
    assert len(there) == 2
    process = leaving.process
    assert process is not None
    leaving.signal(signal.SIGTERM)
    await until(lambda: cluster.engine.replicas()["verifier"] == 1)
    late = await begin(cluster)
    assert await sessions(cluster, "verifier 1") == 6
    last = there[-1]
    others = [place for place in range(len(ASKS)) if place != last]
    assert await finish([*late, *(early[place] for place in others)]) == expected + [expected[p] for p in others]
    await asyncio.sleep(1.0)
    assert process.poll() is None  # one session is still there
    assert await early[last].finish() == expected[last]
    await leaving.ended()  # long before its time of grace is over
    assert process.returncode == 0
    assert [each.rebuilds for each in (*early, *late)] == [0] * 8
    await come_back(cluster, "verifier 2")


async def test_a_weight_store_killed_while_layers_stream_holds_up_the_pass_and_moves_nothing(
    cluster: Cluster, expected: list[list[int]]
) -> None:
    cluster.members["verifier 2"].kill()
    await until(lambda: cluster.engine.replicas()["verifier"] == 1)
    held = await begin(cluster)
    cluster.store.kill()
    finishing = asyncio.create_task(finish(held))
    await asyncio.sleep(1.0)
    read = (await cluster.describe_member("verifier 1")).weight_bytes_read
    cluster.start(cluster.store.name)
    assert await finishing == expected
    assert (await cluster.describe_member("verifier 1")).weight_bytes_read > read
    assert [each.rebuilds for each in held] == [0, 0, 0, 0]
    await come_back(cluster, "verifier 2")


async def test_requests_left_while_their_pass_waits_for_the_weight_store_free_the_unit_at_once(
    cluster: Cluster, expected: list[list[int]]
) -> None:
    cluster.members["verifier 2"].kill()
    await until(lambda: cluster.engine.replicas()["verifier"] == 1)
    held = await begin(cluster)
    cluster.store.kill()
    running = [asyncio.create_task(each.finish()) for each in held]
    await asyncio.sleep(0.5)
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    async with asyncio.timeout(10):
        while await sessions(cluster, "verifier 1"):
            await asyncio.sleep(0.05)
    cluster.start(cluster.store.name)
    await come_back(cluster, "verifier 2")
    assert await finish(await begin(cluster)) == expected


async def test_units_cut_off_from_their_orchestrator_free_its_sessions_within_seconds(
    cluster: Cluster, expected: list[list[int]]
) -> None:
    held = await begin(cluster)
    for unit in cluster.units:
        unit.proxy.cut()
    await cluster.until_nothing_is_held()
    for unit in cluster.units:
        unit.proxy.heal()
    assert await finish(held) == expected
