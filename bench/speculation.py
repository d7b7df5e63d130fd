"""Speculation in host time: tokens a second by kind of prompt and way of drafting, beside plain decoding's."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import exp, log
from pathlib import Path
from statistics import fmean
from typing import Any

from bench.system import ROOT, System, running
from hetspec.model.checkpoint import open_checkpoint
from hetspec.text.tokenizer import TextModel
from weight_store.config import embedded_model

PROMPTS_VARIABLE = "HETSPEC_PROMPTS"  # a JSONL file as Spec-Bench has it; else the tests' own prompts
PER_CATEGORY, MAX_TOKENS = 2, 64
Ways = Mapping[str, Mapping[str, Any]]
IN_TURN: Ways = {
    "plain": {"mode": "plain"},
    "default": {},
    "chain of 5": {"mode": "chain", "max_depth": 5, "min_gain": 0.0},
    "tree of 32": {"mode": "tree", "max_nodes": 32, "max_depth": 8, "min_gain": 0.0},
}
AHEAD: Ways = {
    **{mode: {"mode": mode} for mode in ("plain", "tree", "lever", "ahasd", "full")},
    **{f"{mode}, 4 outcomes": {"mode": mode, "outcomes": 4} for mode in ("ahasd", "full")},
}


@dataclass(frozen=True, slots=True)
class Row:
    """Of a category. speed: tokens a second over plain decoding's, geometric mean of its prompts; accept_length: tokens
    a round. By way of drafting."""

    category: str
    plain_tokens_per_s: float
    speed: Mapping[str, float]
    accept_length: Mapping[str, float]


def measure(ways: Ways, report: Any = print) -> list[Row]:
    """Each prompt in every way, plain decoding among them, one after another, so that all meet the same neighbours."""
    text = TextModel(open_checkpoint(embedded_model()).text)
    seen: dict[str, list[dict[str, tuple[float, float]]]] = defaultdict(list)
    with running({}) as system:
        for category, prompt in _prompts():
            ids = text.encode_chat([{"role": "user", "content": prompt}])
            if not seen:
                _measure(system, ids, ways)  # warms up
            seen[category].append(_measure(system, ids, ways))
            report(f"speculation: {category}")
    everything = [one for ones in seen.values() for one in ones]
    return [_row(category, ones) for category, ones in (*seen.items(), ("all", everything))]


def _measure(system: System, ids: list[int], ways: Ways) -> dict[str, tuple[float, float]]:
    """Tokens a second and accept length of each way. The prefix cache would favour the later ones."""
    found: dict[str, tuple[float, float]] = {}
    for way, options in ways.items():
        answer = system.complete(ids, MAX_TOKENS, hetspec={**options, "prefix_cache": False}, ignore_eos=True)
        found[way] = answer.tokens_per_s, answer.statistics["accept_length"]
    return found


def _row(category: str, ones: list[dict[str, tuple[float, float]]]) -> Row:
    speed = {way: exp(fmean(log(one[way][0] / one["plain"][0]) for one in ones)) for way in ones[0]}
    accepted = {way: fmean(one[way][1] for one in ones) for way in ones[0]}
    return Row(category, fmean(one["plain"][0] for one in ones), speed, accepted)


def _prompts() -> Iterator[tuple[str, str]]:
    """The first of each category."""
    path = Path(os.environ.get(PROMPTS_VARIABLE) or ROOT / "tests" / "data" / "prompts.jsonl")
    taken: dict[str, int] = defaultdict(int)
    for line in path.read_text("utf-8").splitlines():
        prompt = json.loads(line)
        taken[prompt["category"]] += 1
        if taken[prompt["category"]] <= PER_CATEGORY:
            yield prompt["category"], prompt["turns"][0]


def table(rows: list[Row]) -> str:
    ways = [way for way in rows[0].speed if way != "plain"]
    lines = ["| prompts | plain (tokens/s) | " + " | ".join(f"{way} | tokens a pass" for way in ways) + " |"]
    lines.append("|---|---|" + "---|---|" * len(ways))
    for row in rows:
        cells = " | ".join(f"{row.speed[way]:.2f}x | {row.accept_length[way]:.2f}" for way in ways)
        lines.append(f"| {row.category} | {row.plain_tokens_per_s:.1f} | {cells} |")
    return "\n".join(lines)
