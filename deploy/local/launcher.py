"""Brings the five services to the state that is asked for, from whatever state they are in."""

from __future__ import annotations

import fcntl
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from deploy.local import ports, process
from deploy.local.process import RunFolder
from deploy.local.settings import LaunchError, Service

POLL_S = 0.1
PORT_WAIT_S = 2.0  # a process that has just been killed holds its port a little longer


@dataclass
class Launcher:
    """`say` prints a line of progress; `ready` asks a service whether it answers."""

    root: Path
    folder: RunFolder
    code: str  # digest of the code
    ready: Callable[[Service], bool]
    say: Callable[[str], None] = print
    ready_within_s: float = 600.0
    grace_s: float = 15.0  # more than a service's own drain
    _children: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _announced: set[str] = field(default_factory=set)

    def up(self, services: list[Service]) -> None:
        """Returns when all of them are ready. What runs with unchanged settings is left alone."""
        with self._lock():
            self._stop_outdated(services)
            for service in services:
                self._refuse_foreign_port(service)
            for stage in (services[:1], services):  # the weight store first: units read from it when they start
                for service in stage:
                    self._start_missing(service)
                self._wait_ready(stage)

    def down(self) -> list[str]:
        """Stops what this folder knows of; returns the names of those that ran."""
        with self._lock():
            names = [name for name in self.folder.names() if self.folder.read(name)]
            process.stop(self.folder, ["orchestrator"], self.grace_s)  # its running requests still need the units
            process.stop(self.folder, self.folder.names(), self.grace_s)
            return names

    def _stop_outdated(self, services: list[Service]) -> None:
        outdated = []
        for service in services:
            record = self.folder.read(service.name)
            if record and record.digest != service.digest(self.code):
                self.say(f"{service.name} has new settings or code: restarting it")
                outdated.append(service.name)
        process.stop(self.folder, outdated, self.grace_s)

    def _refuse_foreign_port(self, service: Service) -> None:
        if self.folder.read(service.name) is not None:
            return
        deadline = time.monotonic() + PORT_WAIT_S
        try:
            while ports.taken(service.host, service.port):
                if time.monotonic() > deadline:
                    raise LaunchError(f"{service.name}: port {service.port} is taken by {ports.holder(service.port)}")
                time.sleep(POLL_S)
        except OSError as error:
            raise LaunchError(f"{service.name}: cannot listen on {service.host}: {error.strerror}") from error

    def _start_missing(self, service: Service) -> None:
        record = self.folder.read(service.name)
        if record is not None and record.frozen:
            self.say(f"{service.name} is stopped by a signal: restarting it")
            process.stop(self.folder, [service.name], self.grace_s)
            record = None
        if record is None:
            digest = service.digest(self.code)
            self._children[service.name] = process.start(service, digest, self.folder, self.root)
            self.say(f"{service.name} starting on port {service.port}")

    def _wait_ready(self, services: list[Service]) -> None:
        """Watches all of them until the last one is ready."""
        deadline = time.monotonic() + self.ready_within_s
        waiting = {service.name for service in services}
        while waiting:
            for service in services:
                self._restart_or_raise_if_dead(service)
                if service.name in waiting and self.ready(service):
                    waiting.remove(service.name)
                    self._say_ready(service)
            if waiting and time.monotonic() > deadline:
                names = ", ".join(sorted(waiting))
                raise LaunchError(f"not ready after {self.ready_within_s:.0f} s: {names}; see `make logs`")
            time.sleep(POLL_S if waiting else 0)

    def _say_ready(self, service: Service) -> None:
        if service.name not in self._announced:
            self._announced.add(service.name)
            self.say(f"{service.name} ready")

    def _restart_or_raise_if_dead(self, service: Service) -> None:
        """A process found running may be about to end, and is started anew; one that this run started failed."""
        child = self._children.get(service.name)
        if child is not None and child.poll() is not None:
            self.folder.forget(service.name)
            raise LaunchError(
                f"{service.name} ended with code {child.returncode}: {self.folder.last_line(service.name)}"
            )
        self._start_missing(service)

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """One launcher at a time in a folder."""
        with (self.folder.path / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
