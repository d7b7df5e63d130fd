"""What the last requests took in an emulated world, task by task, for whoever asks afterwards."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter

from orchestrator.api.emulation import clock_json, explained
from orchestrator.api.errors import ApiError
from orchestrator.api.strict_json import StrictRoute
from orchestrator.clock.presence import Presence
from orchestrator.engine.engine import Engine

KEPT = 256


class Explanations:
    """By request id, the newest KEPT."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, tuple[Presence, ...]] = OrderedDict()

    def add(self, request_id: str, choices: Sequence[Presence]) -> None:
        self._kept[request_id] = tuple(choices)
        self._kept.move_to_end(request_id)
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)

    def of(self, request_id: str) -> tuple[Presence, ...] | None:
        return self._kept.get(request_id)


def explanation_routes(engine: Engine, explanations: Explanations) -> APIRouter:
    router = APIRouter(prefix="/v1/hetspec", route_class=StrictRoute)

    @router.get("/requests/{request_id}")
    async def explanation(request_id: str) -> dict[str, Any]:
        choices = explanations.of(request_id)
        if choices is None:
            kept = f"the last {KEPT} that ended well under an emulated clock are kept"
            message = f"no request {request_id!r:.80} is kept: {kept}"
            raise ApiError(404, message, param="request_id", code="request_not_found")
        told = [{"index": index, **explained(choice)} for index, choice in enumerate(choices)]
        return {"object": "hetspec.explanation", "id": request_id, **clock_json(engine.world), "choices": told}

    return router
