"""What the last requests took, task by task, for whoever asked for them and wants to know afterwards."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from fastapi import APIRouter, Request

from orchestrator.api.auth import account_of
from orchestrator.api.emulation import clock_json, explained
from orchestrator.api.errors import ApiError
from orchestrator.api.strict_json import StrictRoute
from orchestrator.api.trace_events import trace_json
from orchestrator.engine.engine import Engine
from orchestrator.engine.request import Statistics

MAX_REQUESTS, MAX_TASKS = 256, 20_000


@dataclass(slots=True)
class Explanations:
    """The newest requests that ended well, by key and id: no key sees those of another. max_tasks: of all of them
    together."""

    max_requests: int = MAX_REQUESTS
    max_tasks: int = MAX_TASKS
    _kept: OrderedDict[tuple[str, str], tuple[Statistics, ...]] = field(default_factory=OrderedDict, init=False)
    _tasks: int = field(default=0, init=False)

    def add(self, http: Request, request_id: str, choices: Sequence[Statistics]) -> None:
        place = _owner(http), request_id
        self._forget(place)
        self._kept[place] = tuple(choices)
        self._tasks += _tasks(choices)
        while len(self._kept) > self.max_requests or self._tasks > self.max_tasks:
            self._forget(next(iter(self._kept)))

    def find(self, http: Request, request_id: str) -> tuple[Statistics, ...]:
        """Raises ApiError."""
        found = self._kept.get((_owner(http), request_id))
        if found is None:
            kept = f"this key's are kept among the last {self.max_requests} that ended well"
            raise _not_found(f"no request {request_id!r:.80} is kept: {kept}")
        return found

    def _forget(self, place: tuple[str, str]) -> None:
        self._tasks -= _tasks(self._kept.pop(place, ()))


def _owner(http: Request) -> str:
    account = account_of(http)
    return account.name if account else ""


def _tasks(choices: Sequence[Statistics]) -> int:
    charges = sum(len(choice.presence.charges) for choice in choices if choice.presence is not None)
    return max(charges, sum(len(choice.timeline.tasks) for choice in choices))


def _not_found(message: str) -> ApiError:
    return ApiError(404, message, param="request_id", code="request_not_found")


def explanation_routes(engine: Engine, explanations: Explanations) -> APIRouter:
    router = APIRouter(prefix="/v1/hetspec", route_class=StrictRoute)

    @router.get("/requests/{request_id}")
    async def explanation(request_id: str, http: Request) -> dict[str, Any]:
        choices = explanations.find(http, request_id)
        presences = [choice.presence for choice in choices if choice.presence is not None]
        if not presences:
            raise _not_found(f"request {request_id!r:.80} ran under the host's clock: its trace tells of it")
        told = [{"index": index, **explained(presence)} for index, presence in enumerate(presences)]
        return {"object": "hetspec.explanation", "id": request_id, **clock_json(engine.world), "choices": told}

    @router.get("/traces/{request_id}")
    async def trace(request_id: str, http: Request) -> dict[str, Any]:
        return trace_json(request_id, explanations.find(http, request_id), engine.world)

    return router
