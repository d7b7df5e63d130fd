"""hetspec itself, started for a measurement on ports of its own, and asked over HTTP."""

from __future__ import annotations

import json
import os
import socket
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from deploy.local import readiness, settings
from deploy.local.launcher import Launcher
from deploy.local.process import RunFolder

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
    def __init__(self, address: str) -> None:
        self._client = httpx.Client(base_url=f"http://{address}", timeout=600)

    def complete(self, prompt: list[int] | str, max_tokens: int, **fields: Any) -> Answer:
        """A greedy streamed completion, unless `fields` say otherwise."""
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
                text += "".join(choice["text"] for choice in chunk["choices"])
                usage, statistics = chunk.get("usage") or usage, chunk.get("hetspec") or statistics
        tokens = usage["completion_tokens"]
        # The last chunks carry statistics, not tokens: the time to the last token is what the units and rounds took.
        return Answer(text, arrivals[0], (tokens - 1) / (arrivals[-1] - arrivals[0]), tokens, statistics)


@contextmanager
def running(environ: Mapping[str, str]) -> Iterator[System]:
    """The five services on free ports, with these settings; stopped at the end."""
    names = ("HETSPEC_PORT", "HETSPEC_WEIGHT_STORE", "HETSPEC_VERIFIER", "HETSPEC_DRAFTER", "HETSPEC_SAMPLER")
    ports = _free_ports(len(names))
    places = {
        name: str(port) if name == "HETSPEC_PORT" else f"127.0.0.1:{port}"
        for name, port in zip(names, ports, strict=True)
    }
    inherited = {name: value for name, value in os.environ.items() if name.startswith("HETSPEC_")}
    with tempfile.TemporaryDirectory() as folder:
        launcher = Launcher(ROOT, RunFolder(Path(folder)), "", readiness.ready, say=lambda _line: None)
        services = settings.services({**inherited, **places, **environ})
        try:
            launcher.up(services)
            yield System(services[-1].address)
        finally:
            launcher.down()


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports: list[int] = [s.getsockname()[1] for s in sockets]
    for each in sockets:
        each.close()
    return ports
