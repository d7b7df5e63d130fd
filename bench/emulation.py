"""What emulated time costs in host time: the same requests under both clocks, one after another, side by side, and once
more from a record of what the target says, without it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bench.replaying import Replay, replaying
from bench.system import Answer, System, running
from laboratory.policy import Policy
from orchestrator.policies.mode import Mode

HARDWARE, COST_AS = "oneplus12", "llama2-7b:int4"
EMULATED = {"HETSPEC_CLOCK": "emulated", "HETSPEC_HARDWARE": HARDWARE, "HETSPEC_COST_AS": COST_AS}
PROMPTS, PROMPT_TOKENS, MAX_TOKENS = 6, 64, 64
WAYS = (
    Policy("plain", Mode.PLAIN),
    Policy("chain of 5", Mode.CHAIN, 5, 5),
    Policy("tree of 16", Mode.TREE, 16, 6),
)


@dataclass(frozen=True, slots=True)
class Row:
    """Seconds of all prompts together. Rounds are the same: no choice here depends on time."""

    way: str
    host_s: float
    emulated_s: float
    replayed_s: float
    rounds: int


def measure(ids: list[int], report: Any = print) -> list[Row]:
    """ids: of a text, from which prompts are cut."""
    prompts = [ids[first : first + PROMPT_TOKENS] for first in range(0, (PROMPTS + 1) * PROMPT_TOKENS, PROMPT_TOKENS)]
    spent: dict[str, list[tuple[float, float, float, int]]] = defaultdict(list)
    with (
        replaying(prompts, MAX_TOKENS, HARDWARE, COST_AS, WAYS) as replay,
        running({}) as host,
        running(EMULATED) as imagined,
    ):
        for way in WAYS:  # prompt after prompt, so that none finds what was drafted for it by another way
            for number in range(len(prompts)):
                took = _compare(host, imagined, replay, number, way)
                if number:  # the first one warms up
                    spent[way.name].append(took)
            report(f"emulation: {way.name}")
    return [Row(way, *(sum(values) for values in zip(*took, strict=True))) for way, took in spent.items()]


def _compare(
    host: System, emulated: System, replay: Replay, number: int, way: Policy
) -> tuple[float, float, float, int]:
    """Seconds under both clocks and from the record, and rounds. The prefix cache would favour nothing, and is left out
    all the same."""
    recorded = replay.record.answers[number]
    order = (host, emulated) if number % 2 == 0 else (emulated, host)
    ask: dict[str, Any] = {"hetspec": {**_options(way), "prefix_cache": False}, "ignore_eos": True}
    answers = {id(system): system.complete(list(recorded.prompt), len(recorded.tokens), **ask) for system in order}
    real, imagined = answers[id(host)], answers[id(emulated)]
    replayed_s, outcome = replay.run(number, way.name)
    rounds = real.statistics["rounds"]
    if (real.text, rounds) != (imagined.text, imagined.statistics["rounds"]) or rounds != outcome.rounds:
        raise RuntimeError("the clocks and the record did not do the same")
    return _seconds(real), _seconds(imagined), replayed_s, rounds


def _options(way: Policy) -> Mapping[str, Any]:
    if way.mode is Mode.PLAIN:
        return {"mode": "plain"}
    return {"mode": way.mode.value, "max_nodes": way.max_nodes, "max_depth": way.max_depth, "min_gain": 0.0}


def _seconds(answer: Answer) -> float:
    return answer.first_token_s + (answer.completion_tokens - 1) / answer.tokens_per_s


def table(rows: list[Row]) -> str:
    lines = [
        "| | rounds | host (s) | emulated (s) | over host | replayed (s) | over host |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row.way} | {row.rounds} | {row.host_s:.2f} | {row.emulated_s:.2f} | {row.emulated_s / row.host_s:.3f} | "
        f"{row.replayed_s:.2f} | {row.replayed_s / row.host_s:.3f} |"
        for row in rows
    ]
    return "\n".join(lines)
