"""The `Work` streams, as data: what their messages are called and how items become records and back.

The server side (work.py) and the orchestrator's unit clients are generic over these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from hetspec.rpc.messages import Draft, DraftItem, HiddenStates, VerifyItem, Walk, WalkItem
from hetspec.telemetry.task_record import TaskKind
from hetspec.v1 import (
    drafter_pb2,
    drafter_pb2_grpc,
    sampler_pb2,
    sampler_pb2_grpc,
    verifier_pb2,
    verifier_pb2_grpc,
)

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Contract(Generic[Item, Result]):
    """One unit's `Work`. Protobuf classes are `Any`: the three families share their fields, not a base."""

    unit: str
    peer: str  # the service whose process keeps it: its certificate shows that name
    service: str
    stub: Any
    add_servicer: Any
    request: Any
    response: Any
    task: Any
    result: Any
    item_result: Any
    item_to_pb: Callable[[Item], Any]
    item_from_pb: Callable[[Any], Item]
    result_to_pb: Callable[[Result], Any]
    result_from_pb: Callable[[Any], Result]
    stateful: bool  # items carry a SessionUpdate, and the unit holds their sessions
    kind: Callable[[Sequence[Item]], TaskKind]  # of a task of these items


def _pre_verify_kind(items: Sequence[VerifyItem]) -> TaskKind:
    return TaskKind.PRE_VERIFY if any(item.tree for item in items) else TaskKind.PREFILL


def _verify_kind(items: Sequence[VerifyItem]) -> TaskKind:
    if any(len(item.update.append) > 1 for item in items):
        return TaskKind.PREFILL
    return TaskKind.VERIFY if any(item.tree for item in items) else TaskKind.DECODE


VERIFY: Contract[VerifyItem, HiddenStates] = Contract(
    unit="verifier",
    peer="verifier",
    service="hetspec.v1.Verifier",
    stub=verifier_pb2_grpc.VerifierStub,
    add_servicer=verifier_pb2_grpc.add_VerifierServicer_to_server,
    request=verifier_pb2.VerifierRequest,
    response=verifier_pb2.VerifierResponse,
    task=verifier_pb2.VerifyTask,
    result=verifier_pb2.VerifyResult,
    item_result=verifier_pb2.VerifyItemResult,
    item_to_pb=VerifyItem.to_pb,
    item_from_pb=VerifyItem.from_pb,
    result_to_pb=HiddenStates.to_pb,
    result_from_pb=HiddenStates.from_pb,
    stateful=True,
    kind=_verify_kind,
)

PRE_VERIFY = replace(VERIFY, unit="pre_verifier", peer="drafter", kind=_pre_verify_kind)
"""The same service, kept by a drafter that holds the target."""

DRAFT: Contract[DraftItem, Draft] = Contract(
    unit="drafter",
    peer="drafter",
    service="hetspec.v1.Drafter",
    stub=drafter_pb2_grpc.DrafterStub,
    add_servicer=drafter_pb2_grpc.add_DrafterServicer_to_server,
    request=drafter_pb2.DrafterRequest,
    response=drafter_pb2.DrafterResponse,
    task=drafter_pb2.DraftTask,
    result=drafter_pb2.DraftResult,
    item_result=drafter_pb2.DraftItemResult,
    item_to_pb=DraftItem.to_pb,
    item_from_pb=DraftItem.from_pb,
    result_to_pb=Draft.to_pb,
    result_from_pb=Draft.from_pb,
    stateful=True,
    kind=lambda _: TaskKind.DRAFT,
)

WALK: Contract[WalkItem, Walk] = Contract(
    unit="sampler",
    peer="sampler",
    service="hetspec.v1.Sampler",
    stub=sampler_pb2_grpc.SamplerStub,
    add_servicer=sampler_pb2_grpc.add_SamplerServicer_to_server,
    request=sampler_pb2.SamplerRequest,
    response=sampler_pb2.SamplerResponse,
    task=sampler_pb2.WalkTask,
    result=sampler_pb2.WalkResult,
    item_result=sampler_pb2.WalkItemResult,
    item_to_pb=WalkItem.to_pb,
    item_from_pb=WalkItem.from_pb,
    result_to_pb=Walk.to_pb,
    result_from_pb=Walk.from_pb,
    stateful=False,
    kind=lambda _: TaskKind.WALK,
)

PRE_WALK = replace(WALK, unit="pre_sampler")
"""The same service, on what a drafter has pre-verified."""
