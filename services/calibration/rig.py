"""The units of a running system, ready to be measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from calibration.draft_probe import DraftProbe
from calibration.errors import CalibrationError
from calibration.plan import READ_CHUNK, Chunk, Plan, Round, Tree
from calibration.sample import Sample
from calibration.target_probe import TargetProbe
from calibration.unit_stream import UnitStream
from calibration.walk_probe import WalkProbe
from hetspec.hardware.cost_as import RealShapes
from hetspec.model.weights import RoleMissingError, WeightsError, read_manifest
from hetspec.rpc.contracts import DRAFT, VERIFY, WALK
from hetspec.rpc.tls import RpcTls

_WEIGHTS_TIMEOUT_S = 10.0
_BEHIND = 640  # positions behind the deepest context: what a draft reads at most, what passes add
_SLACK = 1024  # of the cache: chunks and trees
_LEAST_CONTEXT = 256


@dataclass(frozen=True, slots=True)
class Addresses:
    """Each "host:port"."""

    weight_store: str
    verifier: str
    drafter: str
    sampler: str


class Rig:
    """Measures rounds of tasks. Made by `open_rig`."""

    def __init__(
        self, verifier: UnitStream[Any, Any], drafter: UnitStream[Any, Any], sampler: UnitStream[Any, Any]
    ) -> None:
        self.description = verifier.description
        self._target = TargetProbe(verifier)
        self._draft = DraftProbe(drafter, verifier.description.vocab_size, verifier.description.hidden_size)
        self._walk = WalkProbe(sampler, verifier.description.hidden_size)

    @property
    def has_draft(self) -> bool:
        return self._draft.has_model

    def deepest(self, wanted: int) -> int:
        """Tokens of the context that the verifier has room for, at most `wanted`. Raises CalibrationError."""
        told = self.description
        free = told.kv_capacity_tokens - told.kv_held_tokens
        room = min(told.max_context - _BEHIND, (free - _SLACK) // 2)
        if room < _LEAST_CONTEXT:
            raise CalibrationError(f"the verifier has room for {max(0, room)} tokens more, needs {_LEAST_CONTEXT}")
        return int(min(wanted, room)) // READ_CHUNK * READ_CHUNK

    def read(self, plan: Plan) -> list[Sample]:
        """The context that the plan's rounds hang below."""
        samples = self._target.read(plan.max_context, READ_CHUNK)
        if self.has_draft:
            self._draft.read(plan.max_context)
        self.branch(plan.contexts)
        return samples

    def branch(self, contexts: Sequence[int]) -> None:
        """Trees and drafts hang below these many tokens from now on."""
        self._target.branch(contexts)
        if self.has_draft:
            self._draft.branch(contexts)

    def round(self, one: Round) -> list[Sample]:
        samples = [self._draft.draft(one.draft_level, one.draft)] if self.has_draft else []
        match one.target:
            case Tree(level, rows):
                samples.append(self._target.tree(level, rows))
            case Chunk(context, rows):
                samples.append(self._target.chunk(context, rows))
        samples.append(self._walk.path(one.walk) if one.lazy else self._walk.at_once(one.walk))
        return samples


@contextmanager
def open_rig(addresses: Addresses, tls: RpcTls | None = None) -> Iterator[Rig]:
    """Raises CalibrationError where a unit is missing or at work."""
    with ExitStack() as stack:
        units: Sequence[UnitStream[Any, Any]] = [
            stack.enter_context(UnitStream(contract, address, tls))
            for contract, address in (
                (VERIFY, addresses.verifier),
                (DRAFT, addresses.drafter),
                (WALK, addresses.sampler),
            )
        ]
        for unit in units:
            unit.check_idle()
        if units[0].description.layers_resident < units[0].description.layers:
            raise CalibrationError("the verifier streams layers: calibrate without HETSPEC_DRAM_BUDGET")
        yield Rig(*units)


def real_shapes(address: str, tls: RpcTls | None = None) -> RealShapes:
    """Of the models that the weight store at `address` serves. Raises CalibrationError."""
    try:
        target = read_manifest(address, "target", _WEIGHTS_TIMEOUT_S, tls).config
        try:
            draft = read_manifest(address, "draft", _WEIGHTS_TIMEOUT_S, tls).config
        except RoleMissingError:
            draft = None
    except WeightsError as error:
        raise CalibrationError(str(error)) from error
    return RealShapes.of(target, draft)
