"""What a tree round costs outside the units' compute: queues, wire, orchestrator."""

from __future__ import annotations

from statistics import median
from typing import Any

from bench.system import running

REPEATS = 5


def measure(prompt: str, report: Any = print) -> dict[str, float]:
    """Medians over requests of per-round means, in ms."""
    rounds: list[dict[str, float]] = []
    with running({"HETSPEC_THREADS": "2", "HETSPEC_PREFIX_TOKENS": "0"}) as system:
        for repeat in range(REPEATS + 1):
            answer = system.complete(prompt, 128, hetspec={"mode": "tree", "max_nodes": 32, "max_depth": 5})
            host_ms = {
                name: ns / 1e6 / answer.statistics["rounds"] for name, ns in answer.statistics["host_ns"].items()
            }
            if repeat:
                rounds.append(host_ms)
            report(f"rounds: repeat {repeat} of {REPEATS}")
    medians = {name: median(r.get(name, 0.0) for r in rounds) for name in rounds[0]}
    outside = [r["queue"] + r["orchestrator"] for r in rounds]
    share = [(r["queue"] + r["orchestrator"]) / sum(r.values()) for r in rounds]
    return medians | {"outside": median(outside), "outside_share": median(share)}


def table(figures: dict[str, float]) -> str:
    lines = ["| part of a tree round | ms |", "|---|---|"]
    lines += [f"| {name} | {value:.2f} |" for name, value in figures.items() if name != "outside_share"]
    return "\n".join([*lines, f"| outside's share of the round | {figures['outside_share']:.1%} |"])
