"""What the loss of a verifier costs a request: the pause until its next token, by the length of its context."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

import grpc

from bench.system import System, running
from deploy.local.launcher import Launcher
from hetspec.v1 import common_pb2, verifier_pb2_grpc

REPEATS = 3
CONTEXTS = (64, 256, 512, 1024)
_BEFORE, _AFTER = 8, 8  # chunks before the kill, and after it
_SEEN = 3  # of the pauses after it the longest counts: a chunk may have been on its way


@dataclass(frozen=True, slots=True)
class Row:
    """Medians, in seconds: the pause when the session's verifier is killed, the same without, the prompt's own time."""

    context: int
    killed_s: float
    undisturbed_s: float
    first_token_s: float


def measure(ids: list[int], report: Any = print) -> list[Row]:
    """ids: of a text, at least the longest context."""
    seen: dict[int, list[tuple[float, float, float]]] = {length: [] for length in CONTEXTS}
    with running({"HETSPEC_THREADS": "1", "HETSPEC_PREFIX_TOKENS": "0"}, verifiers=2) as system:
        system.complete(ids[:64], 4)
        for repeat in range(REPEATS):
            for length in CONTEXTS:
                prompt = ids[repeat : repeat + length]
                undisturbed_s, first_token_s = _pause(system, prompt, lambda: None)
                killed_s, _ = _pause(system, prompt, lambda: _kill_busy(system))
                _bring_back(system)
                seen[length].append((killed_s, undisturbed_s, first_token_s))
            report(f"faults: repeat {repeat + 1} of {REPEATS}")
    return [Row(length, *(median(values) for values in zip(*seen[length], strict=True))) for length in CONTEXTS]


def _pause(system: System, prompt: list[int], action: Callable[[], object]) -> tuple[float, float]:
    """The longest pause between tokens that follows `action`, and the time to the first token."""
    arrivals: list[float] = []

    def on_chunk() -> None:
        if len(arrivals) == _BEFORE:
            action()
        arrivals.append(time.perf_counter())

    options = {"mode": "plain"}
    answer = system.complete(prompt, _BEFORE + _AFTER, on_chunk, hetspec=options, ignore_eos=True)
    after = arrivals[_BEFORE : _BEFORE + _SEEN + 1]
    return max(later - earlier for earlier, later in pairwise(after)), answer.first_token_s


def _kill_busy(system: System) -> None:
    for launcher, service in system.verifiers:
        with grpc.insecure_channel(service.address) as channel:
            if verifier_pb2_grpc.VerifierStub(channel).Describe(common_pb2.DescribeRequest()).sessions:
                _kill(launcher)


def _kill(launcher: Launcher) -> None:
    record = launcher.folder.read("verifier")
    assert record is not None
    os.kill(record.pid, signal.SIGKILL)


def _bring_back(system: System) -> None:
    for launcher, service in system.verifiers:
        record = launcher.folder.read("verifier")
        if record is None:
            launcher.up([service])
    while system.replicas()["verifier"] < len(system.verifiers):
        time.sleep(0.05)


def table(rows: list[Row]) -> str:
    lines = ["| context | first token of the prompt (ms) | longest pause (ms) | when its verifier is killed (ms) |"]
    lines.append("|---|---|---|---|")
    lines += [
        f"| {row.context} | {row.first_token_s * 1e3:.0f} | {row.undisturbed_s * 1e3:.0f} | {row.killed_s * 1e3:.0f} |"
        for row in rows
    ]
    return "\n".join(lines)
