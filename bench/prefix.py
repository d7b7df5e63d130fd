"""Time to the first token of a conversation's next turn, with what the turns before left in the cache and without."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import Any

from bench.system import System, running

REPEATS = 5
PREFIX_LENGTHS = (64, 256, 1024)  # tokens of the first turn's prompt
ANSWERED, ASKED = 16, 16  # tokens of its answer; new tokens of the next turn


@dataclass(frozen=True, slots=True)
class Row:
    """Medians."""

    prefix: int
    cached_tokens: int
    with_cache_s: float
    without_s: float


def measure(ids: list[int], report: Any = print) -> list[Row]:
    """ids: of a text; every repeat begins elsewhere in it, so that nothing but its own first turn can be reused."""
    seen: dict[int, list[tuple[int, float, float]]] = {length: [] for length in PREFIX_LENGTHS}
    with running({"HETSPEC_THREADS": "2"}) as system:
        for repeat in range(REPEATS + 1):
            for length in PREFIX_LENGTHS:
                start = 7 * repeat + 1
                figures = _next_turn(system, ids[start : start + length + ASKED], repeat % 2 == 0)
                if repeat:  # the first round warms up
                    seen[length].append(figures)
            report(f"prefix: repeat {repeat} of {REPEATS}")
    return [Row(length, *(median(values) for values in zip(*seen[length], strict=True))) for length in PREFIX_LENGTHS]


def _next_turn(system: System, ids: list[int], cache_first: bool) -> tuple[int, float, float]:
    """cached_tokens; seconds to the first token with the cache and without, asked for in this order or the other."""
    prompt, asked = ids[:-ASKED], ids[-ASKED:]
    options = {"mode": "plain"}
    system.complete(prompt, ANSWERED, hetspec=options, ignore_eos=True)
    first = [*prompt, *asked]
    cached_tokens, seconds = 0, {}
    for reuse in (cache_first, not cache_first):
        answer = system.complete(first, 2, hetspec=options | {"prefix_cache": reuse}, ignore_eos=True)
        seconds[reuse] = answer.first_token_s
        cached_tokens = max(cached_tokens, answer.statistics["cached_tokens"])
    return cached_tokens, seconds[True], seconds[False]


def table(rows: list[Row]) -> str:
    lines = ["| tokens of the turn before | reused | first token (ms) | without the cache (ms) | ratio |"]
    lines.append("|---|---|---|---|---|")
    lines += [
        f"| {row.prefix} | {row.cached_tokens} | {row.with_cache_s * 1e3:.0f} | {row.without_s * 1e3:.0f} | "
        f"{row.without_s / row.with_cache_s:.1f}x |"
        for row in rows
    ]
    return "\n".join(lines)
