"""Our processes, known by pid and start time: a pid that the system gave to somebody else is never taken for ours."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from deploy.local.settings import Service

KILL_WAIT_S = 5.0


@dataclass(frozen=True, slots=True)
class Record:
    """What a pid file holds."""

    pid: int
    started: str  # as `birth` tells it
    digest: str  # of the settings and the code it was started with

    @property
    def alive(self) -> bool:
        return birth(self.pid) == self.started

    @property
    def frozen(self) -> bool:
        """Stopped by a signal: it holds its port and answers nobody."""
        return self.alive and _state(self.pid) in ("T", "t")


class RunFolder:
    """`.run`: a pid file and a log for each service."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(exist_ok=True)

    def log(self, name: str) -> Path:
        return self.path / f"{name}.log"

    def _pid_file(self, name: str) -> Path:
        return self.path / f"{name}.pid"

    def names(self) -> list[str]:
        return sorted(file.stem for file in self.path.glob("*.pid"))

    def read(self, name: str) -> Record | None:
        """The record of a process that lives; a file that is left over, or broken, is none."""
        try:
            record = Record(**json.loads(self._pid_file(name).read_text()))
        except (FileNotFoundError, ValueError, TypeError):
            return None
        return record if record.alive else None

    def write(self, name: str, record: Record) -> None:
        draft = self._pid_file(name).with_suffix(".new")
        draft.write_text(json.dumps(asdict(record)))
        draft.replace(self._pid_file(name))

    def forget(self, name: str) -> None:
        self._pid_file(name).unlink(missing_ok=True)

    def last_line(self, name: str) -> str:
        with contextlib.suppress(FileNotFoundError):
            lines = self.log(name).read_text(errors="replace").strip().splitlines()
            return lines[-1] if lines else ""
        return ""


def start(service: Service, digest: str, folder: RunFolder, root: Path) -> subprocess.Popen[bytes]:
    """In a session of its own, so that an interrupt at the terminal ends the launcher and not the service."""
    log = folder.log(service.name)
    if log.exists():
        log.replace(log.with_suffix(".log.1"))
    env = {name: value for name, value in os.environ.items() if not name.startswith("HETSPEC_")}
    env |= {"PYTHONPATH": str(root / "services"), "PYTHONUNBUFFERED": "1", **service.env}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", service.name],
            cwd=root,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    folder.write(service.name, Record(process.pid, birth(process.pid) or "", digest))
    return process


def stop(folder: RunFolder, names: list[str], grace_s: float) -> None:
    """Tells all of them to end, then ends those that have not."""
    records = {name: record for name in names if (record := folder.read(name)) is not None}
    for record in records.values():
        _signal(record, signal.SIGTERM)
        _signal(record, signal.SIGCONT)  # a stopped process would not hear it
    _wait_all(list(records.values()), grace_s)
    for record in records.values():
        _signal(record, signal.SIGKILL)
    _wait_all(list(records.values()), KILL_WAIT_S)
    for name in names:
        folder.forget(name)


def _signal(record: Record, number: signal.Signals) -> None:
    if record.alive:
        with contextlib.suppress(ProcessLookupError):
            os.kill(record.pid, number)


def _wait_all(records: list[Record], limit_s: float) -> None:
    deadline = time.monotonic() + limit_s
    while any(record.alive for record in records) and time.monotonic() < deadline:
        time.sleep(0.05)


def birth(pid: int) -> str | None:
    """When the process began, in the system's own words; None when there is none, or only its corpse."""
    if Path("/proc/self/stat").exists():
        fields = _stat(pid)
        return None if fields is None or fields[0] in ("Z", "X") else fields[19]  # starttime, in ticks since boot
    told = subprocess.run(["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    state, _, began = told.stdout.strip().partition(" ")
    return began.strip() if began and not state.startswith("Z") else None


def _state(pid: int) -> str:
    fields = _stat(pid)
    return fields[0] if fields else ""


def _stat(pid: int) -> list[str] | None:
    """/proc/<pid>/stat from the state on: the name before it may hold anything."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
