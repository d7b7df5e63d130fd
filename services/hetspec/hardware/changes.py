"""Fields of a profile that are to be others: `devices.pim.preemptible=off,memories.dram.bandwidth=90 GB/s`."""

from __future__ import annotations

import re
from typing import Any

import yaml

_PATH = r"[\w-]+(?:\.[\w-]+)*"
_NEXT = re.compile(rf",\s*(?={_PATH}\s*=)")
_CHANGE = re.compile(rf"\s*({_PATH})\s*=(.*)", re.DOTALL)


def parse_changes(text: str) -> dict[str, object]:
    """Value by path. Values are read as in a profile: `off`, `[1, 8]`, `90 GB/s`. Raises ValueError."""
    changes: dict[str, object] = {}
    for part in _NEXT.split(text):
        found = _CHANGE.fullmatch(part)
        if found is None or not found[2].strip():
            raise ValueError(f"{part!r}, must be FIELD=VALUE, such as devices.pim.preemptible=off")
        path = found[1]
        if path in changes:
            raise ValueError(f"{path} stands twice")
        try:
            changes[path] = yaml.safe_load(found[2])
        except (ValueError, RecursionError, yaml.YAMLError) as error:
            raise ValueError(f"{path}: {' '.join(str(error).split())}") from error
    return changes


def change(data: dict[str, Any], path: str, value: object) -> None:
    """In place. A number keeps its form and says that it was set. What does not exist is added, for the profile's own
    checks to refuse."""
    *before, last = path.split(".")
    at: Any = data
    for key in before:
        at = at.get(key) if isinstance(at, dict) else None
        if not isinstance(at, dict):
            raise ValueError(f"{path}: there is no {key!r}")
    old = at.get(last)
    is_number = isinstance(old, dict) and "value" in old and not isinstance(value, dict)
    at[last] = {"value": value, "assumption": "set for this run"} if is_number else value
