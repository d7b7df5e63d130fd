"""python -m tests.faults.puppet verifier|drafter|sampler: the unit itself, which answers nonsense when told to.

A line on standard input names the lie; an empty one ends it. "delay SECONDS": its tasks are up to so late.
PUPPET_DIGEST stands for the unit's own digest; PUPPET_REMOTE=1 makes it read its weights over the wire, as on another
host.
"""

from __future__ import annotations

import os
import random
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from drafter import unit as drafter_unit
from drafter.config import DrafterSettings
from hetspec.model import weights
from hetspec.rpc.contracts import DRAFT, VERIFY, WALK, Contract
from hetspec.rpc.messages import Draft, HiddenStates, PassResult, Walk
from hetspec.rpc.server import ServerSettings, run_server
from hetspec.rpc.settings import read_settings
from hetspec.rpc.unit import LoadedUnit, UnitService
from hetspec.rpc.work import ShouldStop
from sampler import unit as sampler_unit
from sampler.config import SamplerSettings
from tests.faults.tardy import Tardy
from verifier import unit as verifier_unit
from verifier.config import VerifierSettings

DELAY = "delay "
_BEYOND = 1 << 20  # no vocabulary is as large

RESULT_LIES: dict[str, dict[str, Callable[[Any], object]]] = {
    "verifier": {
        "one row too many": lambda result: HiddenStates(result.data, result.rows + 1),
        "no rows": lambda result: HiddenStates(b"", 0),
        "bytes of no row": lambda result: HiddenStates(result.data + b"\7", result.rows),
    },
    "drafter": {
        "ids beyond the vocabulary": lambda result: replace(result, tree=_chain([_BEYOND])),
        "more nodes than asked for": lambda result: replace(result, tree=_chain([3] * 300)),
        "children before parents": lambda result: _Raw(result, tree={"tokens": [1, 2], "parents": [1, -1]}),
    },
    "sampler": {
        "ids beyond the vocabulary": lambda result: replace(result, tokens=(_BEYOND, *result.tokens[1:])),
        "no token": lambda result: replace(result, tokens=()),
        "nodes that are no path": lambda result: replace(result, accepted=(*result.accepted, 300)),
        "more tokens than asked for": lambda result: replace(result, tokens=result.tokens * 300),
    },
}
WIRE_LIES = ("an answer to another task", "one result too few", "an unknown error code", "a bug")
UNITS: dict[str, tuple[Contract[Any, Any], Any, Any]] = {
    "verifier": (VERIFY, verifier_unit.load, VerifierSettings),
    "drafter": (DRAFT, drafter_unit.load, DrafterSettings),
    "sampler": (WALK, sampler_unit.load, SamplerSettings),
}


def lies_of(kind: str) -> list[str]:
    return [*RESULT_LIES[kind], *WIRE_LIES]


def _chain(tokens: Sequence[int]) -> Any:
    from hetspec.decoding.tree import TokenTree

    return TokenTree.chain(tokens)


class _Raw:
    """A result that no record can hold: `fields` replace those of its message."""

    def __init__(self, result: Draft, **fields: Any) -> None:
        self._result, self._fields = result, fields

    def to_pb(self) -> Any:
        pb = self._result.to_pb()
        return type(pb)(**self._fields)


class Mouth:
    """What is told, between the unit's engine and the wire."""

    def __init__(self, kind: str) -> None:
        self.lie = ""
        self._tardy: list[Tardy] = []
        self._of_results = RESULT_LIES[kind]

    def listen(self) -> None:
        for line in sys.stdin:
            if line.startswith(DELAY):
                for engine in self._tardy:
                    engine.most_s = float(line.removeprefix(DELAY))
            else:
                self.lie = line.strip()

    def late(self, loaded: LoadedUnit[Any, Any]) -> LoadedUnit[Any, Any]:
        """As late as it will be told."""
        self._tardy.append(Tardy(loaded.engine, random.Random()))
        return replace(loaded, engine=self._tardy[-1])

    def results(self, results: Sequence[Any]) -> tuple[Any, ...]:
        if self.lie == "a bug":
            raise RuntimeError("a bug")
        spoil = self._of_results.get(self.lie)
        return tuple(results) if spoil is None else tuple(_spoilt(result, spoil) for result in results)

    def message(self, fields: dict[str, Any]) -> dict[str, Any]:
        match self.lie:
            case "an answer to another task":
                return fields | {"task_id": fields["task_id"] + random.randint(1, 1000)}
            case "one result too few":
                return fields | {"items": list(fields.get("items", ()))[:-1]}
            case "an unknown error code":
                return {"task_id": fields["task_id"], "error": {"code": 99, "message": "?"}}
        return fields


def _spoilt(result: Any, spoil: Callable[[Any], object]) -> object:
    return spoil(result) if isinstance(result, HiddenStates | Draft | Walk) else result


class Engine:
    def __init__(self, engine: Any, mouth: Mouth) -> None:
        self._engine, self._mouth = engine, mouth

    def run(self, items: Sequence[Any], should_stop: ShouldStop) -> PassResult[Any]:
        result: PassResult[Any] = self._engine.run(items, should_stop)
        return replace(result, items=self._mouth.results(result.items))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


def main() -> int:
    kind = sys.argv[1]
    contract, load, settings_type = UNITS[kind]
    settings = read_settings(kind, settings_type)
    mouth = Mouth(kind)
    if os.environ.get("PUPPET_REMOTE"):
        weights._open_local = lambda _grant: None
    threading.Thread(target=mouth.listen, daemon=True).start()

    def load_puppet() -> LoadedUnit[Any, Any]:
        loaded = mouth.late(load(settings))
        return replace(loaded, engine=Engine(loaded.engine, mouth), describe=lambda: _described(loaded.describe()))

    lying = replace(
        contract,
        result=lambda **fields: contract.result(**mouth.message(fields)),
        result_to_pb=lambda result: result.to_pb(),
    )
    return run_server(UnitService(lying, load_puppet), ServerSettings.of(settings))


def _described(description: Any) -> Any:
    description.identity.digest = os.environ.get("PUPPET_DIGEST", description.identity.digest)
    return description


if __name__ == "__main__":
    sys.exit(main())
