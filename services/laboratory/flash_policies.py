"""What `hetspec bench ahasd` compares where the target streams from flash: with flash reading ahead across passes, and
resting between them."""

from __future__ import annotations

from dataclasses import replace

from laboratory.lever_policies import no_read_ahead
from laboratory.policy import Policy
from orchestrator.policies.mode import Mode

PLAIN, LEVER, AHASD, FULL, FULL_OUTCOMES = "plain", "lever", "ahasd", "full", "full, 4 outcomes"
_RESTS = "flash rests"
_LENGTH, _NODES, _DEPTH = 5, 63, 16
_LARGE = 255  # nodes: as `hetspec bench lever` asks for


def reading_ahead() -> list[Policy]:
    full = Policy(FULL, Mode.FULL, _NODES, _DEPTH)
    return [
        Policy(PLAIN, Mode.PLAIN),
        Policy(LEVER, Mode.LEVER, _NODES, _DEPTH),
        Policy(AHASD, Mode.AHASD, _LENGTH, _LENGTH),
        full,
        replace(full, name=FULL_OUTCOMES, outcomes=4),
    ]


def resting() -> list[Policy]:
    return [replace(one, name=rested(one.name), hardware=no_read_ahead) for one in reading_ahead()]


def large() -> list[Policy]:
    trees = (Policy(LEVER, Mode.LEVER, _LARGE, _DEPTH), Policy(FULL, Mode.FULL, _LARGE, _DEPTH))
    return [replace(one, name=f"{one.name} of {_LARGE} nodes") for one in trees]


def all_policies() -> list[Policy]:
    return [*reading_ahead(), *resting(), *large()]


def rested(name: str) -> str:
    return f"{name}, {_RESTS}"


def rests(name: str) -> bool:
    return name.endswith(f", {_RESTS}")
