"""What every service is doing: how busy each is, and where one of them spends its time."""

from __future__ import annotations

import secrets
import time
from dataclasses import asdict
from typing import Annotated, Any, Literal, Protocol

from fastapi import APIRouter, Request
from pydantic import Field, PlainValidator

from hetspec.telemetry.counters import Counters
from hetspec.telemetry.profile import MAX_SECONDS, MIN_SECONDS, Profile
from hetspec.telemetry.profiler import Profiler, ProfilerBusyError
from orchestrator.api.admission import Admission
from orchestrator.api.errors import ApiError
from orchestrator.api.metrics import Metrics
from orchestrator.api.strict import Strict
from orchestrator.api.strict_json import StrictRoute
from orchestrator.engine.engine import Engine
from orchestrator.engine.errors import UnitsUnavailable
from orchestrator.units.errors import NoReplica, UnitLost
from orchestrator.units.watch import ServiceState

_REQUESTS = "hetspec_requests_total"
_TOKENS = tuple(f"hetspec_{which}_tokens_total" for which in ("generated", "verified", "accepted"))


class Context(Protocol):
    """What these routes are given."""

    @property
    def engine(self) -> Engine: ...
    @property
    def admission(self) -> Admission: ...
    @property
    def metrics(self) -> Metrics: ...


def _replica(value: Any) -> str | int:
    if (isinstance(value, str) and value) or (type(value) is int and value >= 0):
        return value
    raise ValueError("must be an address or the place of one, from 0")


class ProfileBody(Strict):
    """replica: its address or its place among those of its unit; without it the one with most to do."""

    unit: Literal["orchestrator", "weight_store", "verifier", "drafter", "sampler"]
    replica: Annotated[str | int, PlainValidator(_replica, json_schema_input_type=str | int)] | None = None
    seconds: Annotated[int, Field(ge=MIN_SECONDS, le=MAX_SECONDS)] = 10


def observe_routes(context: Context) -> APIRouter:
    router = APIRouter(prefix="/v1/hetspec", route_class=StrictRoute)
    engine, this = context.engine, _Orchestrator(context)

    @router.get("/units")
    async def units(http: Request) -> dict[str, Any]:
        states = [this.state(http.url.netloc), *await engine.watch.states()]
        return {"object": "list", "data": [asdict(state) for state in states]}

    @router.post("/profile")
    async def profile(body: ProfileBody, http: Request) -> dict[str, Any]:
        try:
            if body.unit == "orchestrator":
                state = this.check(http.url.netloc, body.replica)
                return _document(state, await this.profiler.profile(body.seconds))
            return _document(*await engine.watch.profile(body.unit, body.replica, body.seconds))
        except NoReplica as error:
            raise ApiError(404, f"replica: {error}", param="replica", code="replica_not_found") from error
        except ProfilerBusyError as error:
            raise ApiError(409, str(error), param="unit", code="profile_running") from error
        except UnitLost as error:
            raise ApiError(503, str(error), type_="server_error", code="unit_unavailable") from error

    return router


def _document(state: ServiceState, profile: Profile) -> dict[str, Any]:
    return {"object": "hetspec.profile", "service": asdict(state), **asdict(profile)}


class _Orchestrator:
    """This process, told as the units tell of themselves: busy is its processor time, tasks are its requests."""

    def __init__(self, context: Context) -> None:
        self.profiler = Profiler(context.metrics.registry)
        self._context = context
        self._since_s = time.monotonic()
        self._instance = secrets.token_hex(16)

    def check(self, address: str, replica: str | int | None) -> ServiceState:
        """Raises NoReplica: there is one orchestrator here."""
        if replica not in (None, 0, address):
            raise NoReplica(f"there is no orchestrator {replica}; there is {address}")
        return self.state(address)

    def state(self, address: str) -> ServiceState:
        admission, counted = self._context.admission, Counters(self._context.metrics.registry, (_REQUESTS, *_TOKENS))
        generated, verified, accepted = (int(counted.total(name)) for name in _TOKENS)
        model, precision = self._model()
        return ServiceState(
            "orchestrator",
            0,
            address,
            instance=self._instance,
            model=model,
            precision=precision,
            uptime_seconds=time.monotonic() - self._since_s,
            busy_seconds=time.process_time(),
            tasks=int(counted.total(_REQUESTS)),
            running=admission.running,
            queued=admission.queued,
            generated_tokens=generated,
            verified_tokens=verified,
            accepted_tokens=accepted,
        )

    def _model(self) -> tuple[str, str]:
        try:
            description = self._context.engine.description
        except UnitsUnavailable:
            return "", ""
        return description.model, description.precision
