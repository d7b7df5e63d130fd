"""What a study has found out, kept answer by answer, so that it goes on where it was ended.

A JSON file an answer, {"outcomes": {key: outcome}}. A key is a hash over what a study is told that outcomes depend on:
record, draft or stated acceptance, hardware as the policy changes it, what it is priced as, and what the policy asks
for. So what has changed is not found, and a policy that only has another name is.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from hetspec.model.fingerprint import write_atomically
from laboratory.errors import StudyError
from laboratory.outcome import Outcome
from laboratory.study import Run

_OUTCOME = TypeAdapter(Outcome)
_NOT_ASKED = {"name", "hardware"}  # fields of a policy


class Kept:
    """folder: None keeps nothing."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def outcomes(self, place: int) -> dict[str, Outcome]:
        """Of the record's answer at this place, by key. Raises StudyError where the file is damaged."""
        path = self._path(place)
        if path is None or not path.exists():
            return {}
        try:
            return {key: _outcome(told) for key, told in json.loads(path.read_bytes())["outcomes"].items()}
        except (ValueError, KeyError, TypeError, AttributeError, ValidationError) as error:
            raise StudyError(f"{path}: damaged, remove it: {' '.join(str(error).split())}") from error

    def keep(self, place: int, found: Mapping[str, Outcome]) -> None:
        """Beside what is there. Raises OSError."""
        path = self._path(place)
        if path is None or not found:
            return
        told = {key: _told(outcome) for key, outcome in (self.outcomes(place) | dict(found)).items()}
        write_atomically(path, json.dumps({"outcomes": told}).encode())

    def _path(self, place: int) -> Path | None:
        return self._folder and self._folder / f"{place:05}.json"


def key_of(fingerprint: str, run: Run, before: tuple[int, ...] = ()) -> str:
    """fingerprint: of record and draft. before: the places of answers that this one learns from."""
    pair, policy = run
    asked = {field.name: getattr(policy, field.name) for field in fields(policy) if field.name not in _NOT_ASKED}
    hardware = policy.hardware(pair.hardware)
    parts = fingerprint, hardware.model_dump_json(), repr(pair.cost_as), _text(asked), repr(before)
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=16).hexdigest()


def _text(asked: Mapping[str, Any]) -> str:
    """The same in every process, which a set's own order is not."""
    return repr({name: sorted(value) if isinstance(value, frozenset) else value for name, value in asked.items()})


def _told(outcome: Outcome) -> dict[str, Any]:
    return asdict(outcome) | {"time_ns": [[*key, ns] for key, ns in outcome.time_ns.items()]}


def _outcome(told: dict[str, Any]) -> Outcome:
    times = {(device, component): ns for device, component, ns in told["time_ns"]}
    return _OUTCOME.validate_python(told | {"time_ns": times})
