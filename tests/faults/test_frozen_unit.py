"""A unit's process that is stopped, not ended: its connection stays open and says nothing."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hetspec.decoding.history import History
from hetspec.rpc.channel import KeepAlive
from hetspec.rpc.contracts import VERIFY
from hetspec.rpc.messages import SessionUpdate, VerifyItem
from orchestrator.policies.batching import PassLimits
from orchestrator.units.errors import UnitLost
from orchestrator.units.replica_set import ReplicaSet
from orchestrator.units.settings import LinkSettings, ReplicaSettings

PROGRAM = """
import asyncio
from hetspec.rpc.contracts import VERIFY
from tests.fakes import FakeUnit, FakeVerifier

async def main():
    unit = FakeUnit(VERIFY, FakeVerifier)
    await unit.start()
    print(unit.port, flush=True)
    await asyncio.sleep(3600)

asyncio.run(main())
"""

ITEM = VerifyItem(SessionUpdate("a", 1, 0, History().hash, append=(1,)))


@pytest.fixture
def verifier() -> Iterator[subprocess.Popen[str]]:
    root = Path(__file__).parents[2]
    environment = os.environ | {"PYTHONPATH": f"{root / 'services'}:{root}"}
    process = subprocess.Popen([sys.executable, "-c", PROGRAM], env=environment, stdout=subprocess.PIPE, text=True)
    yield process
    process.kill()
    process.communicate()


async def test_frozen_unit_is_lost_by_its_silence_and_found_again_when_it_thaws(
    verifier: subprocess.Popen[str],
) -> None:
    assert verifier.stdout is not None
    port = (await asyncio.to_thread(verifier.stdout.readline)).strip()
    # The task's own timeout is far away: what is noticed is that pings go unanswered.
    link = LinkSettings(connect_timeout_s=1.0, task_timeout_s=600.0, keep_alive=KeepAlive(time_ms=300, timeout_ms=300))
    replicas = ReplicaSet(VERIFY, f"127.0.0.1:{port}", lambda _: PassLimits(64, 64), ReplicaSettings(link))
    replicas.start()
    try:
        replica = await replicas.pick()
        assert (await replica.submit(ITEM, 1)).value.rows == 1
        verifier.send_signal(signal.SIGSTOP)
        with pytest.raises(UnitLost):
            await asyncio.wait_for(replica.submit(ITEM, 1), timeout=60)
        verifier.send_signal(signal.SIGCONT)
        thawed = await replicas.pick()
        assert thawed is not replica
        assert (await thawed.submit(ITEM, 1)).value.rows == 1
    finally:
        await replicas.close()
