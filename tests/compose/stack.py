"""The whole system in containers, by docker-compose.yml: under a name of its own, on a free port."""

from __future__ import annotations

import functools
import json
import os
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROJECT = "hetspec-test"
LABEL = f"label=com.docker.compose.project={PROJECT}"
_BUILD_S, _UP_S, _COMMAND_S = 900, 300, 120
_INHERITED = {name: value for name, value in os.environ.items() if not name.startswith(("HETSPEC_", "COMPOSE_"))}


class CommandFailed(Exception):
    """With what it printed."""


def run(*command: str, environ: Mapping[str, str] | None = None, timeout_s: float = _COMMAND_S) -> str:
    """What it prints on standard output."""
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=_INHERITED | dict(environ or {}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    if done.returncode:
        raise CommandFailed(f"{' '.join(command)}: {done.returncode}\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
    return done.stdout


@functools.cache
def compose_command() -> tuple[str, ...]:
    """Compose v2, else v1."""
    try:
        run("docker", "compose", "version")
    except CommandFailed:
        return ("docker-compose",)
    return ("docker", "compose")


class Stack:
    """environ: HETSPEC_* settings, as a user would set them. overlays: of deploy/compose. services: none given: all."""

    def __init__(self, environ: Mapping[str, str], overlays: Sequence[str] = (), services: Sequence[str] = ()) -> None:
        self._environ = {"HETSPEC_PORT": str(free_port()), **environ}
        self._services = services
        files = ("docker-compose.yml", *(f"deploy/compose/{name}.yml" for name in overlays))
        self._files = [argument for file in files for argument in ("-f", file)]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._environ['HETSPEC_PORT']}"

    def compose(self, *arguments: str, timeout_s: float = _COMMAND_S) -> str:
        return run(
            *compose_command(), "-p", PROJECT, *self._files, *arguments, environ=self._environ, timeout_s=timeout_s
        )

    def build(self) -> None:
        self.compose("build", timeout_s=_BUILD_S)

    def up(self, **replicas: int) -> None:
        """Returns when the units are healthy and the orchestrator has been started."""
        scales = [argument for name, count in replicas.items() for argument in ("--scale", f"{name}={count}")]
        try:
            self.compose("up", "-d", "--no-recreate", *scales, *self._services, timeout_s=_UP_S)
        except CommandFailed as failed:
            raise CommandFailed(f"{failed}\n{self.compose('logs', '--no-color', '--tail', '10')}") from None

    def down(self) -> None:
        """Of this run or of one that was cut off."""
        self.compose("down", "--volumes", "--remove-orphans", "--timeout", "5")

    def leftovers(self) -> list[str]:
        """Containers, networks and volumes."""
        containers = run("docker", "ps", "-aq", "--filter", LABEL).split()
        networks = run("docker", "network", "ls", "-q", "--filter", LABEL).split()
        return containers + networks + run("docker", "volume", "ls", "-q", "--filter", LABEL).split()

    def containers(self, service: str) -> list[str]:
        return sorted(self.compose("ps", "-q", service).split())

    def python(self, container: str, program: str) -> object:
        """What `program` prints as JSON, run beside the service."""
        return json.loads(run("docker", "exec", container, "python", "-c", program))

    def cpu_s(self, container: str) -> float:
        """Of the service's own process, since its start."""
        told = self.python(
            container,
            "import os, json; fields = open('/proc/1/stat').read().rpartition(')')[2].split();"
            "print(json.dumps((int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK')))",
        )
        assert isinstance(told, float)
        return told


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port
