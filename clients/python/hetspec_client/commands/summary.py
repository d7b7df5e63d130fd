"""What an answer took, in one line."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hetspec_client.answers import Answer, Statistics


@dataclass(slots=True)
class Stopwatch:
    """Runs from its making; durations as the user saw them."""

    _started: float = field(default_factory=time.perf_counter)
    first_s: float | None = None

    def first(self) -> None:
        """The first text is there; told once or more."""
        if self.first_s is None:
            self.first_s = time.perf_counter() - self._started

    def total_s(self) -> float:
        return time.perf_counter() - self._started


def summary(answer: Answer, watch: Stopwatch) -> str:
    total_s = watch.total_s()
    parts = []
    if answer.usage is not None:
        tokens = answer.usage.completion_tokens
        parts.append(f"{tokens} tokens in {total_s:.2f} s ({tokens / total_s:.1f} a second)")
    if watch.first_s is not None:
        parts.append(f"the first after {watch.first_s:.2f} s")
    if answer.statistics is not None:
        parts += _speculation(answer.statistics)
    reasons = {choice.finish_reason for choice in answer.choices}
    return ", ".join([*parts, f"ended by {' and '.join(sorted(reasons))}"])


def _speculation(told: Statistics) -> list[str]:
    drafted = f"{told.accepted} of {told.drafted} drafted accepted"
    rounds = f"{told.rounds} rounds of {told.accept_length:.2f}"
    emulated = _emulated(told.more)
    more = [f"{name} {_short(value)}" for name, value in told.more.items() if _is_plain(name, value)]
    cached = [f"{told.cached_tokens} prompt tokens cached"] if told.cached_tokens else []
    return [f"mode {told.mode}", rounds, drafted, *cached, f"seed {told.seed}", *emulated, *more]


_EMULATED = ("clock", "hardware", "cost_as", "emulated_", "energy_", "plain_emulated_", "io_share", "lag_ns")


def _is_plain(name: str, value: Any) -> bool:
    return isinstance(value, int | float | str) and not name.startswith(_EMULATED)


def _emulated(told: Mapping[str, Any]) -> list[str]:
    """On emulated hardware, if any: time there, beside plain decoding's, and energy."""
    if "emulated_total_ns" not in told:
        return []
    total_ns, plain_ns = told["emulated_total_ns"], told["plain_emulated_total_ns"]
    faster = f", {plain_ns / total_ns:.2f}x as fast as plain decoding" if total_ns else ""
    took = f"{total_ns / 1e9:.3f} s and {told['energy_total_pj'] / 1e12:.3f} J"
    return [f"on {told['hardware']} as {told['cost_as']}: {took}{faster}"]


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
