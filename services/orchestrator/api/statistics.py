"""The `hetspec` field of an answer: what a request's choices took together, and each alone where there are several."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

from orchestrator.engine.request import Statistics

_COUNTERS = ("rounds", "drafted", "verified", "accepted", "emitted", "cached_tokens")
_BY_DEPTH = ("drafted_by_depth", "accepted_by_depth")
_BY_NAME = ("drafted_by_source", "accepted_by_source", "host_ns")


def statistics_json(choices: Sequence[Statistics], seed: int) -> dict[str, Any]:
    """seed: as the client wrote it."""
    told = {"mode": str(choices[0].mode), **_sums(choices), "seed": seed}
    if len(choices) > 1:
        told["choices"] = [{"index": index, **_sums([choice])} for index, choice in enumerate(choices)]
    return told


def _sums(choices: Sequence[Statistics]) -> dict[str, Any]:
    sums: dict[str, Any] = {name: sum(getattr(choice, name) for choice in choices) for name in _COUNTERS}
    for name in _BY_DEPTH:
        at_depth = zip_longest(*(getattr(choice, name) for choice in choices), fillvalue=0)
        sums[name] = [sum(counts) for counts in at_depth]
    for name in _BY_NAME:
        named: Counter[str] = Counter()
        for choice in choices:
            named.update(getattr(choice, name))
        sums[name] = dict(named)
    accept_length = sums["emitted"] / sums["rounds"] if sums["rounds"] else 0.0
    return sums | {"accept_length": accept_length}
