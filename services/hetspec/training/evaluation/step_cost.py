"""What a draft step takes against a plain step of the target: one row through the layers and the head of each."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hetspec.model.head import Head
from hetspec.model.transformer import Span, Transformer
from hetspec.training.speculation.open_draft import DraftParts, OpenDraft
from hetspec.training.target import Target

CONTEXT_TOKENS = 128
_REPEATS = 21


@dataclass(frozen=True, slots=True)
class StepCost:
    """Medians, measured by turns, of a row behind CONTEXT_TOKENS others."""

    draft_ns: int
    target_ns: int

    @property
    def share(self) -> float:
        return self.draft_ns / self.target_ns


def measure_cost(target: Target, draft: OpenDraft, threads: int) -> StepCost:
    room = CONTEXT_TOKENS + 8
    transformer = Transformer(
        target.pack, threads=threads, max_rows=CONTEXT_TOKENS, max_context=room, kv_capacity_tokens=2 * room
    )
    head = Head(target.pack, threads=threads)
    parts = DraftParts(draft, threads=threads, max_rows=CONTEXT_TOKENS, max_context=room, kv_tokens=2 * room)
    try:
        steps = (_draft_step(parts), _target_step(transformer, head))
        times = [[_timed_ns(step) for step in steps] for _ in range(_REPEATS)]
    finally:
        transformer.close()
        head.close()
        parts.close()
    draft_ns, target_ns = (int(statistics.median(column)) for column in zip(*times, strict=True))
    return StepCost(draft_ns, target_ns)


def _timed_ns(step: Callable[[], None]) -> int:
    start_ns = time.perf_counter_ns()
    step()
    return time.perf_counter_ns() - start_ns


def _target_step(transformer: Transformer, head: Head) -> Callable[[], None]:
    cache = transformer.new_cache()
    transformer.run([Span(cache, [0] * CONTEXT_TOKENS)])

    def step() -> None:
        rows, _ = transformer.run([Span(cache, [0])])
        cache.length -= 1
        head.logits(rows)

    return step


def _draft_step(parts: DraftParts) -> Callable[[], None]:
    transformer, features = parts.transformer, parts.features
    cache = transformer.new_cache()
    above = np.ones((CONTEXT_TOKENS, transformer.config.hidden_size), np.float32)

    def run(tokens: int) -> None:
        added = features.project(above[:tokens]) if features else None
        rows, _ = transformer.run([Span(cache, [0] * tokens, added=added)])
        parts.head.logits(rows[-1:])

    def step() -> None:
        run(1)
        cache.length -= 1

    run(CONTEXT_TOKENS)
    return step
