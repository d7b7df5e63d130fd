"""Checks of the fields of JSON objects whose layout is this system's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def check_keys(where: str, data: Any, expected: set[str]) -> None:
    """Raises ValueError unless `data` is an object of these fields and no others."""
    found = set(data) if isinstance(data, dict) else set()
    if found != expected:
        raise ValueError(f"{where}: unknown fields {sorted(found - expected)}, missing {sorted(expected - found)}")


def check_constants(data: Mapping[str, Any], expected: Mapping[str, object]) -> None:
    """Raises ValueError unless each of these fields has its one value."""
    for key, value in expected.items():
        if data[key] != value or isinstance(data[key], bool):  # true equals 1
            raise ValueError(f"{key} = {data[key]!r:.60}, must be {value!r}")
