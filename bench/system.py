"""hetspec itself, started for a measurement on ports of its own, and asked over HTTP."""

from __future__ import annotations

import json
import os
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx

from deploy.local import readiness, settings
from deploy.local.launcher import Launcher
from deploy.local.process import RunFolder
from deploy.local.settings import Service

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Answer:
    """One streamed completion as the client saw it. tokens_per_s leaves the first token out."""

    text: str
    first_token_s: float
    tokens_per_s: float
    completion_tokens: int
    statistics: dict[str, Any]


class System:
    """verifiers: each a launcher and its service, to be killed and brought up again."""

    def __init__(self, address: str, verifiers: Sequence[tuple[Launcher, Service]], places: Mapping[str, str]) -> None:
        self.address = address
        self.verifiers = verifiers
        self.places = places
        self._client = httpx.Client(base_url=f"http://{address}", timeout=600)

    def replicas(self) -> dict[str, int]:
        """How many of each unit are there."""
        told: dict[str, int] = self._client.get("/readyz").json()["replicas"]
        return told

    def complete(
        self, prompt: list[int] | str, max_tokens: int, on_chunk: Callable[[], object] | None = None, **fields: Any
    ) -> Answer:
        """A greedy streamed completion, unless `fields` say otherwise. on_chunk: called after each."""
        body = {"model": "default", "prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "stream": True}
        body |= {"stream_options": {"include_usage": True}} | fields
        start = time.perf_counter()
        arrivals: list[float] = []
        text, usage, statistics = "", {}, {}
        with self._client.stream("POST", "/v1/completions", json=body) as response:
            if response.status_code != 200:
                raise RuntimeError(response.read().decode())
            for line in response.iter_lines():
                if not line.startswith("data: {"):
                    continue
                chunk = json.loads(line.removeprefix("data: "))
                arrivals.append(time.perf_counter() - start)
                if on_chunk is not None:
                    on_chunk()
                text += "".join(choice["text"] for choice in chunk["choices"])
                usage, statistics = chunk.get("usage") or usage, chunk.get("hetspec") or statistics
        tokens = usage["completion_tokens"]
        # The last chunks carry statistics, not tokens: the time to the last token is what the units and rounds took.
        return Answer(text, arrivals[0], (tokens - 1) / (arrivals[-1] - arrivals[0]), tokens, statistics)


@contextmanager
def running(environ: Mapping[str, str], verifiers: int = 1) -> Iterator[System]:
    """The five services on free ports, with these settings; stopped at the end. verifiers: so many replicas."""
    names = ("HETSPEC_PORT", "HETSPEC_WEIGHT_STORE", "HETSPEC_VERIFIER", "HETSPEC_DRAFTER", "HETSPEC_SAMPLER")
    ports = _free_ports(len(names))
    places = {
        name: str(port) if name == "HETSPEC_PORT" else f"127.0.0.1:{port}"
        for name, port in zip(names, ports, strict=True)
    }
    places["HETSPEC_METRICS_PORT"] = "0"
    inherited = {name: value for name, value in os.environ.items() if name.startswith("HETSPEC_")}
    with ExitStack() as stack:
        services = settings.services({**inherited, **places, **environ})
        launchers = [_launcher(stack) for _ in range(verifiers)]
        replicas = [_at_port(services[1], port) for port in _free_ports(verifiers - 1)]
        together = [services[1], *replicas]
        addresses = ",".join(replica.address for replica in together)
        orchestrator = replace(services[-1], env={**services[-1].env, "HETSPEC_VERIFIER": addresses})
        launchers[0].up(services[:-1])
        for launcher, replica in zip(launchers[1:], replicas, strict=True):
            launcher.up([replica])
        launchers[0].up([*services[:-1], orchestrator])
        yield System(orchestrator.address, list(zip(launchers, together, strict=True)), places)


def _at_port(service: Service, port: int) -> Service:
    return replace(service, port=port, env={**service.env, "HETSPEC_PORT": str(port)})


def _launcher(stack: ExitStack) -> Launcher:
    folder = stack.enter_context(tempfile.TemporaryDirectory())
    launcher = Launcher(ROOT, RunFolder(Path(folder)), "", readiness.ready, say=lambda _line: None)
    stack.callback(launcher.down)
    return launcher


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports: list[int] = [s.getsockname()[1] for s in sockets]
    for each in sockets:
        each.close()
    return ports
