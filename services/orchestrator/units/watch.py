"""Looks at every service there is: who it is, how busy it is, and where it spends its time.

Over connections of its own, beside the streams of work, so that it sees those too that no work is sent to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import grpc.aio

from hetspec.rpc.channel import open_channel
from hetspec.rpc.contracts import DRAFT, VERIFY, WALK
from hetspec.rpc.profiler import profile_from_pb
from hetspec.rpc.tls import RpcTls
from hetspec.telemetry.profile import Profile
from hetspec.telemetry.profiler import ProfilerBusyError
from hetspec.v1 import common_pb2, profiler_pb2, profiler_pb2_grpc, weight_store_pb2_grpc
from orchestrator.units.errors import NoReplica, UnitLost
from orchestrator.units.fleet import Fleet

_DESCRIBE_S = 2.0
_SLACK_S = 35.0  # beyond a profile's own time, for its sampler to begin and to end
_HELD = ("sessions", "kv_held_tokens", "kv_capacity_tokens", "leases")
_STUBS: Mapping[str, Any] = {
    "weight_store": weight_store_pb2_grpc.WeightStoreStub,
    "verifier": VERIFY.stub,
    "drafter": DRAFT.stub,
    "sampler": WALK.stub,
}


@dataclass(frozen=True, slots=True)
class Place:
    """replica: the place of `address` among those of its unit."""

    unit: str
    replica: int
    address: str


@dataclass(frozen=True, slots=True)
class ServiceState:
    """What a service says of itself. Seconds, tasks and rows: since its start. None: there is no such thing in it.

    problem: why it did not answer; then the rest is empty.
    """

    unit: str
    replica: int
    address: str
    problem: str | None = None
    instance: str = ""
    model: str = ""
    precision: str = ""
    digest: str = ""
    threads: int = 0
    uptime_seconds: float = 0.0
    busy_seconds: float = 0.0
    tasks: int = 0
    rows: int = 0
    running: int = 0
    queued: int = 0
    sessions: int | None = None
    kv_held_tokens: int | None = None
    kv_capacity_tokens: int | None = None
    leases: int | None = None
    generated_tokens: int | None = None
    verified_tokens: int | None = None
    accepted_tokens: int | None = None


class Watch:
    def __init__(self, fleet: Fleet, weight_store: str, tls: RpcTls | None) -> None:
        self._fleet = fleet
        self._weight_store = weight_store
        self._tls = tls

    async def states(self) -> list[ServiceState]:
        """Of the weight store, then of every replica of the units, also of those that do not answer."""
        places = [place for unit in _STUBS for place in self._places(unit)]
        return list(await asyncio.gather(*(self._state(place) for place in places)))

    async def profile(self, unit: str, replica: str | int | None, seconds: int) -> tuple[ServiceState, Profile]:
        """replica: its address or its place; None: the one with most to do.

        Raises NoReplica, UnitLost, ProfilerBusyError.
        """
        place = self._find(unit, replica)
        state = await self._state(place)
        if state.problem is not None:
            raise UnitLost(f"{unit} at {place.address}: {state.problem}")
        try:
            async with self._channel(place) as channel:
                request = profiler_pb2.ProfileRequest(seconds=seconds)
                reply = await profiler_pb2_grpc.ProfilerStub(channel).Profile(request, timeout=seconds + _SLACK_S)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED:
                raise ProfilerBusyError(f"{unit} at {place.address}: {error.details()}") from error
            raise UnitLost(f"{unit} at {place.address}: {_reason(error)}") from error
        return state, profile_from_pb(reply)

    def _places(self, unit: str) -> list[Place]:
        addresses = [self._weight_store] if unit == "weight_store" else sorted(self._fleet.of(unit).loads)
        return [Place(unit, replica, address) for replica, address in enumerate(addresses)]

    def _find(self, unit: str, replica: str | int | None) -> Place:
        places = self._places(unit)
        if replica is None and places:
            loads = {} if unit == "weight_store" else self._fleet.of(unit).loads
            return max(places, key=lambda place: loads.get(place.address, (0, 0)))
        for place in places:
            if replica in (place.address, place.replica):
                return place
        there = ", ".join(place.address for place in places) or "none"
        raise NoReplica(f"there is no {unit} {'' if replica is None else replica}".rstrip() + f"; there is {there}")

    async def _state(self, place: Place) -> ServiceState:
        try:
            async with self._channel(place) as channel:
                stub = _STUBS[place.unit](channel)
                description = await stub.Describe(common_pb2.DescribeRequest(), timeout=_DESCRIBE_S)
        except grpc.aio.AioRpcError as error:
            return ServiceState(place.unit, place.replica, place.address, problem=_reason(error))
        return _state_of(place, description)

    def _channel(self, place: Place) -> grpc.aio.Channel:
        return open_channel(place.address, peer=place.unit, tls=self._tls)


def _state_of(place: Place, description: Any) -> ServiceState:
    identity, load, fields = description.identity, description.load, description.DESCRIPTOR.fields_by_name
    return ServiceState(
        place.unit,
        place.replica,
        place.address,
        instance=identity.instance,
        model=identity.model,
        precision=identity.precision,
        digest=identity.digest,
        threads=identity.threads,
        uptime_seconds=load.uptime_seconds,
        busy_seconds=load.busy_seconds,
        tasks=load.tasks,
        rows=load.rows,
        running=load.running,
        queued=load.queued,
        **{name: getattr(description, name) for name in _HELD if name in fields},
    )


def _reason(error: grpc.aio.AioRpcError) -> str:
    if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return "does not answer"
    details = error.details() or error.code().name.lower()
    return "cannot be reached" if details.startswith("failed to connect") else details
