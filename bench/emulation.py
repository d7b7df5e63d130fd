"""What emulated time costs in host time: the same requests under both clocks, one after another, side by side."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bench.system import Answer, System, running

EMULATED = {
    "HETSPEC_CLOCK": "emulated",
    "HETSPEC_HARDWARE": "oneplus12",
    "HETSPEC_COST_AS": "llama2-7b:int4",
}
PROMPTS, PROMPT_TOKENS, MAX_TOKENS = 6, 64, 64
WAYS: dict[str, Mapping[str, Any]] = {
    "plain": {"mode": "plain"},
    "chain of 5": {"mode": "chain", "max_depth": 5, "min_gain": 0.0},
    "tree of 16": {"mode": "tree", "max_nodes": 16, "max_depth": 6, "min_gain": 0.0},
}


@dataclass(frozen=True, slots=True)
class Row:
    """Seconds of all prompts together. Rounds are the same: no choice here depends on time."""

    way: str
    host_s: float
    emulated_s: float
    rounds: int


def measure(ids: list[int], report: Any = print) -> list[Row]:
    """ids: of a text, from which prompts are cut."""
    spent: dict[str, list[tuple[float, float, int]]] = defaultdict(list)
    with running({}) as host, running(EMULATED) as emulated:
        for number in range(PROMPTS + 1):
            prompt = ids[number * PROMPT_TOKENS : (number + 1) * PROMPT_TOKENS]
            for way, options in WAYS.items():
                took = _compare(host, emulated, prompt, options, host_first=number % 2 == 0)
                if number:  # the first one warms up
                    spent[way].append(took)
            report(f"emulation: prompt {number} of {PROMPTS}")
    return [Row(way, *(sum(values) for values in zip(*took, strict=True))) for way, took in spent.items()]


def _compare(
    host: System, emulated: System, prompt: list[int], options: Mapping[str, Any], host_first: bool
) -> tuple[float, float, int]:
    """Seconds under both clocks, and rounds. The prefix cache would favour nothing, and is left out all the same."""
    order = (host, emulated) if host_first else (emulated, host)
    ask: dict[str, Any] = {"hetspec": {**options, "prefix_cache": False}, "ignore_eos": True}
    answers = {id(system): system.complete(prompt, MAX_TOKENS, **ask) for system in order}
    real, imagined = answers[id(host)], answers[id(emulated)]
    rounds = real.statistics["rounds"]
    if (real.text, rounds) != (imagined.text, imagined.statistics["rounds"]):
        raise RuntimeError("the two clocks did not do the same")
    return _seconds(real), _seconds(imagined), rounds


def _seconds(answer: Answer) -> float:
    return answer.first_token_s + (answer.completion_tokens - 1) / answer.tokens_per_s


def table(rows: list[Row]) -> str:
    lines = ["| | rounds | host (s) | emulated (s) | ratio |", "|---|---|---|---|---|"]
    lines += [
        f"| {row.way} | {row.rounds} | {row.host_s:.2f} | {row.emulated_s:.2f} | {row.emulated_s / row.host_s:.3f} |"
        for row in rows
    ]
    return "\n".join(lines)
