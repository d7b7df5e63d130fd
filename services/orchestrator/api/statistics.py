"""The `hetspec` field of an answer: what a request's choices took together, and each alone where there are several."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from itertools import zip_longest
from typing import Any

from orchestrator.api.emulation import clock_json, emulation_json
from orchestrator.clock.world import World
from orchestrator.engine.request import Statistics
from orchestrator.policies.control import AheadReport
from orchestrator.policies.lever import LeverReport
from orchestrator.policies.mode import grows_chains

_COUNTERS = ("rounds", "drafted", "verified", "pruned", "accepted", "emitted", "cached_tokens")
_BY_DEPTH = ("drafted_by_depth", "accepted_by_depth")
_BY_NAME = ("drafted_by_source", "accepted_by_source", "host_ns")


def statistics_json(choices: Sequence[Statistics], seed: int, world: World | None) -> dict[str, Any]:
    """seed: as the client wrote it. world: the emulated one they were computed in."""
    told = {"mode": str(choices[0].mode), **_drafting(choices[0]), **clock_json(world), **_sums(choices), "seed": seed}
    if len(choices) > 1:
        told["choices"] = [{"index": index, **_sums([choice])} for index, choice in enumerate(choices)]
    return told


def _drafting(choice: Statistics) -> dict[str, str]:
    """What chose the length of chains, where there are any."""
    return {"drafting": str(choice.drafting)} if grows_chains(choice.mode) else {}


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
    if reports := [choice.lever for choice in choices if choice.lever is not None]:
        sums["lever"] = _lever_json(reports)
    if ahead := [choice.ahead for choice in choices if choice.ahead is not None]:
        sums["ahead"] = _ahead_json(ahead)
    presences = [choice.presence for choice in choices if choice.presence is not None]
    return sums | {"accept_length": accept_length} | (emulation_json(presences) if presences else {})


_AHEAD = ("batches", "drafted", "accepted", "rejected", "confirmed", "dropped", "survived", "lost", "cut")


def _ahead_json(reports: Sequence[AheadReport]) -> dict[str, Any]:
    """drafted = accepted + rejected + confirmed + dropped."""
    counted = (*_AHEAD, "checks_passed", "checks_failed")
    told: dict[str, Any] = {name: sum(getattr(report, name) for report in reports) for name in counted}
    told["tvc"] = [asdict(report.tvc) for report in reports if report.tvc is not None]
    return told


def _lever_json(reports: Sequence[LeverReport]) -> dict[str, Any]:
    """Errors are means over rounds."""
    told: dict[str, Any] = {
        name: sum(getattr(report, name) for report in reports)
        for name in ("rounds", "rested", "expected_tokens", "emitted_tokens")
    }
    for name in ("draft_error", "calibrated_error"):
        total = sum(report.rounds * getattr(report, name) for report in reports)
        told[name] = total / told["rounds"] if told["rounds"] else 0.0
    return told
