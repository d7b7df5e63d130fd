"""Tokens a second by sessions at once and by replicas of the verifier, and which part is at its limit."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from statistics import median
from typing import Any

from bench.system import System, running

REPEATS = 3
SESSIONS = (1, 4, 16)
REPLICAS = {1: 2, 2: 1}  # threads of each, so that they share two cores
PROMPT, NEW = 64, 48  # tokens
_PARTS = ("verifier", "sampler")


@dataclass(frozen=True, slots=True)
class Row:
    """Medians. busy: compute time over wall time, of all replicas together."""

    replicas: int
    sessions: int
    tokens_per_s: float
    busy: dict[str, float]


def measure(ids: list[int], report: Any = print) -> list[Row]:
    """ids: of a text; every session reads a stretch of its own."""
    rows: list[Row] = []
    for replicas, threads in REPLICAS.items():
        settings = {"HETSPEC_THREADS": str(threads), "HETSPEC_PREFIX_TOKENS": "0"}
        with running(settings, verifiers=replicas) as system:
            _run(system, ids, max(SESSIONS))
            for sessions in SESSIONS:
                runs = [_run(system, ids, sessions) for _ in range(REPEATS)]
                busy = {part: median(run[1][part] for run in runs) for part in _PARTS}
                rows.append(Row(replicas, sessions, median(run[0] for run in runs), busy))
            report(f"scaling: {replicas} replicas")
    return rows


def _run(system: System, ids: list[int], sessions: int) -> tuple[float, dict[str, float]]:
    """Tokens a second of all sessions together, and each part's compute time as a share of the wall time."""
    prompts = [ids[PROMPT * number : PROMPT * (number + 1)] for number in range(sessions)]
    start = time.perf_counter()
    with ThreadPoolExecutor(sessions) as pool:
        answers = list(pool.map(lambda prompt: _ask(system, prompt), prompts))
    took_s = time.perf_counter() - start
    tokens = sum(answer.completion_tokens for answer in answers)
    spent_ns = {part: sum(answer.statistics["host_ns"].get(part, 0) for answer in answers) for part in _PARTS}
    return tokens / took_s, {part: ns * 1e-9 / took_s for part, ns in spent_ns.items()}


def _ask(system: System, prompt: list[int]) -> Any:
    return system.complete(prompt, NEW, hetspec={"mode": "plain"}, ignore_eos=True)


def table(rows: list[Row]) -> str:
    lines = [
        "| verifiers | threads of each unit | sessions | tokens/s | of each session | verifiers busy | sampler busy |"
    ]
    lines.append("|---|---|---|---|---|---|---|")
    lines += [
        f"| {row.replicas} | {REPLICAS[row.replicas]} | {row.sessions} | {row.tokens_per_s:.1f} | "
        f"{row.tokens_per_s / row.sessions:.1f} | {row.busy['verifier']:.0%} | {row.busy['sampler']:.0%} |"
        for row in rows
    ]
    return "\n".join(lines)
