"""The tables of drafting control (EDC): those that requests share, and those that a request ended with."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from fastapi import APIRouter, Request

from orchestrator.api.errors import ApiError
from orchestrator.api.explanations import Explanations
from orchestrator.api.strict_json import StrictRoute
from orchestrator.engine.engine import Engine

_KIND = "hetspec.edc"


def edc_routes(engine: Engine, explanations: Explanations) -> APIRouter:
    router = APIRouter(prefix="/v1/hetspec", route_class=StrictRoute)

    @router.get("/edc")
    async def shared() -> dict[str, Any]:
        return {"object": _KIND, "counters": engine.edc.counters}

    @router.get("/edc/{request_id}")
    async def of_request(request_id: str, http: Request) -> dict[str, Any]:
        choices = enumerate(explanations.find(http, request_id))
        told = [
            {"index": index, "edc": asdict(choice.ahead.edc)}
            for index, choice in choices
            if choice.ahead is not None and choice.ahead.edc is not None
        ]
        if not told:
            message = f"request {request_id!r:.80} was decoded without drafting control"
            raise ApiError(404, message, param="request_id", code="edc_not_found")
        return {"object": _KIND, "id": request_id, "choices": told}

    return router
