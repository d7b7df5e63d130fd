"""Requests to the toy units whose tokens are checked as they come."""

from __future__ import annotations

from contextlib import aclosing

from orchestrator.engine.request import GenerationRequest, Statistics
from tests import toy
from tests.fakes import World


def expected(request: GenerationRequest) -> list[int]:
    return toy.continuation(request.prompt_ids, request.max_tokens, request.sampling, request.noise)


async def answer(world: World, request: GenerationRequest) -> Statistics:
    """Whose tokens are right."""
    ids: list[int] = []
    async with aclosing(world.engine.generate(request)) as generation:
        async for emission in generation:
            ids += [token.id for token in emission.tokens]
    assert ids == expected(request)
    return generation.statistics
