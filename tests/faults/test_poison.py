"""A request that kills every unit it reaches: it is given up, and takes nobody with it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import httpx
import pytest

from hetspec.decoding.sampling import NoiseKey, Sampling
from hetspec.rpc.contracts import VERIFY, WALK
from hetspec.rpc.messages import HiddenStates, PassResult, VerifyItem, WalkItem
from hetspec.rpc.work import ShouldStop
from orchestrator.api.admission import Admission
from orchestrator.api.app import create_app
from orchestrator.config import OrchestratorSettings
from orchestrator.engine.errors import RequestFailed
from orchestrator.engine.request import GenerationRequest, Mode
from tests import toy
from tests.fakes import FakeEngine, FakeSampler, FakeUnit, FakeVerifier, World

POISON_SEED = 666
POISON = (5, 5, 5, 5)  # begins the prompt of the request that is one
GREEDY = Sampling(0)


class _Fragile(FakeEngine):
    def is_poison(self, item: Any) -> bool:
        raise NotImplementedError

    def run(self, items: Sequence[Any], should_stop: ShouldStop) -> PassResult[Any]:
        if any(self.is_poison(item) for item in items):
            self._on_death()
            self._thawed.wait()
        return super().run(items, should_stop)


class FragileVerifier(_Fragile, FakeVerifier):
    def is_poison(self, item: VerifyItem) -> bool:
        return item.update.append[: len(POISON)] == POISON

    def spoil(self, result: Any) -> HiddenStates:
        raise NotImplementedError


class FragileSampler(_Fragile, FakeSampler):
    def is_poison(self, item: WalkItem) -> bool:
        return item.noise.seed == POISON_SEED


FRAGILE: dict[str, tuple[Any, Any]] = {"verifier": (VERIFY, FragileVerifier), "sampler": (WALK, FragileSampler)}


def request(prompt: tuple[int, ...], seed: int, max_tokens: int = 40) -> GenerationRequest:
    return GenerationRequest("r", prompt, GREEDY, NoiseKey(seed), max_tokens, Mode.PLAIN, 8, 4)


INNOCENT = [request((1, 2, number), number) for number in range(8)]


async def tokens_of(world: World, asked: GenerationRequest) -> list[int]:
    return [token.id async for emission in world.engine.generate(asked) for token in emission.tokens]


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("kind", ["verifier", "sampler"])
async def test_a_request_that_kills_units_is_given_up_and_those_beside_it_are_not(kind: str, replicas: int) -> None:
    """They share its passes until the first one dies; from then on each goes alone until it has got on."""
    contract, engine = FRAGILE[kind]
    units = [FakeUnit(contract, engine) for _ in range(replicas)]
    async with World(**{f"{kind}s": units}) as world:  # type: ignore[arg-type]
        poison = asyncio.create_task(tokens_of(world, request(POISON, POISON_SEED)))
        answers = await asyncio.gather(*(tokens_of(world, asked) for asked in INNOCENT))
        with pytest.raises(RequestFailed, match="given up after 3 rebuilds without progress: "):
            await poison
        assert sum(unit.instance - 1 for unit in units) == 4
        await world.until_nothing_is_held()
    for asked, found in zip(INNOCENT, answers, strict=True):
        assert found == toy.continuation(asked.prompt_ids, asked.max_tokens, GREEDY, asked.noise)


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("kind", ["verifier", "sampler"])
async def test_over_http_it_is_a_500_that_says_so_and_the_server_goes_on(kind: str, streamed: bool) -> None:
    contract, engine = FRAGILE[kind]
    async with World(**{f"{kind}s": [FakeUnit(contract, engine)]}) as world:  # type: ignore[arg-type]
        app = create_app(world.engine, OrchestratorSettings(), Admission(64, 0))
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
            body = {"prompt": list(POISON), "seed": POISON_SEED, "max_tokens": 8, "temperature": 0, "stream": streamed}
            told = await client.post("/v1/completions", json=body)
            assert told.status_code == 500
            error = told.json()["error"]
            assert (error["type"], error["code"]) == ("server_error", "request_failed")
            assert error["message"].startswith("given up after 3 rebuilds without progress: ")
            await world.until(lambda: all(world.engine.ready().values()))
            sound = await client.post("/v1/completions", json=body | {"prompt": [1, 2], "seed": 1, "stream": False})
            assert sound.status_code == 200
        await world.until_nothing_is_held()
