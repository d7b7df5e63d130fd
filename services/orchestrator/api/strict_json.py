"""Bodies are JSON as RFC 8259 has it: UTF-8, and no key twice, for readers differ in which of the two counts."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute

from orchestrator.api.errors import field_path, invalid

Path = tuple[str | int, ...]


class StrictRoute(APIRoute):
    """A route whose request body is read by `parse`."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            return await handler(_StrictRequest(request.scope, request.receive))

        return handle


class _StrictRequest(Request):
    async def json(self) -> Any:
        return parse(await self.body())


def parse(body: bytes) -> Any:
    """Raises ValueError, RecursionError, and ApiError for a repeated key."""
    repeated: list[tuple[dict[str, Any], str]] = []

    def take(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        taken = dict(pairs)
        if len(taken) < len(pairs):
            counts = Counter(key for key, _ in pairs)
            repeated.append((taken, counts.most_common(1)[0][0]))
        return taken

    value = json.loads(body.decode(), object_pairs_hook=take)
    for holder, key in repeated:
        path = field_path((*next(_paths_to(holder, value), ()), key))
        raise invalid(path, f"{path}: is given twice", code="invalid_json")
    return value


def _paths_to(wanted: object, value: object, path: Path = ()) -> Iterator[Path]:
    if value is wanted:
        yield path
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _paths_to(wanted, inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _paths_to(wanted, inner, (*path, index))
