"""64 streams at once for two minutes, a third of them hung up: nothing but 200 and 429, and nothing is left behind."""

from __future__ import annotations

import asyncio
import csv
import subprocess
import sys
from pathlib import Path

import pytest

from tests.system import Processes, Setup
from weight_store.config import embedded_model

USERS = 64
pytestmark = pytest.mark.soak


def open_files(system: Processes) -> dict[str, int]:
    return {name: len(list(Path(f"/proc/{process.pid}/fd").iterdir())) for name, process in system.running.items()}


def rush(url: str, out: Path, seconds: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "locust", "-f", str(Path(__file__).parent / "locustfile.py"), "--headless"]
    command += ["--host", url, "-u", str(USERS), "-r", str(USERS), "-t", f"{seconds}s", "--stop-timeout", "120"]
    command += ["--csv", str(out), "--only-summary", "--exit-code-on-error", "1", "--skip-log-setup"]
    return subprocess.run(command, capture_output=True, text=True, timeout=seconds + 300, check=False)


def told(out: Path) -> dict[str, dict[str, str]]:
    with Path(f"{out}_stats.csv").open() as file:
        return {row["Name"]: row for row in csv.DictReader(file)}


async def test_64_streams_a_third_hung_up_see_nothing_but_200_and_429_and_leave_nothing(tmp_path: Path) -> None:
    setup = Setup(embedded_model(), Path("~/.cache/hetspec").expanduser(), max_context=2048)
    async with Processes(setup, tmp_path) as system:
        await asyncio.to_thread(rush, system.url, tmp_path / "warm", 5)
        await system.settle()
        before = open_files(system)

        done = await asyncio.to_thread(rush, system.url, tmp_path / "load", 120)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        rows = told(tmp_path / "load")
        for name in ("first token", "between chunks"):
            row = rows[name]
            print(f"{name}: {row['Request Count']}, ms: " + ", ".join(f"p{p} {row[f'{p}%']}" for p in (50, 90, 95, 99)))
        hung_up, all_streams = int(rows["hung up"]["Request Count"]), int(rows["stream"]["Request Count"])
        print(f"streams: {all_streams}, of them hung up: {hung_up}, refused: {rows.get('refused', {})}")
        assert all_streams > 2 * USERS
        assert 0.2 < hung_up / all_streams < 0.5

        await system.settle()  # raises unless KV and sessions are back to nothing
        assert open_files(system) == before
        assert all(process.poll() is None for process in system.running.values())
