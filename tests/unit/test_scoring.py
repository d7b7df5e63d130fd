"""Logprobs of a prompt, over fake units: each token's own, once, whatever fails on the way."""

from __future__ import annotations

from contextlib import aclosing

import pytest

from hetspec.decoding.sampling import NoiseKey, Sampling
from hetspec.rpc.contracts import VERIFY, WALK
from orchestrator.engine.request import Emission, GenerationRequest, Mode
from tests import toy
from tests.fakes import FakeSampler, FakeUnit, FakeVerifier, Fault, RandomChaos, World, fast_settings, toy_logprobs

PROMPT = tuple(place % 25 for place in range(83))  # five chunks and a part of one
UNITS = {"verifiers": (VERIFY, FakeVerifier), "samplers": (WALK, FakeSampler)}


def request_of(prompt: tuple[int, ...], max_tokens: int) -> GenerationRequest:
    sampling, noise = Sampling(0.8), NoiseKey(3)
    return GenerationRequest(
        "r", prompt, sampling, noise, max_tokens, Mode.TREE, 8, 4, top_logprobs=0, scores_prompt=True
    )


async def emissions(world: World, request: GenerationRequest) -> list[Emission]:
    async with aclosing(world.engine.generate(request)) as generation:
        return [emission async for emission in generation]


def check(told: list[Emission], request: GenerationRequest) -> None:
    first, *rest = told
    assert (first.text, first.tokens) == ("", ())
    assert tuple(token.id for token in first.prompt) == request.prompt_ids
    expected = [
        toy_logprobs(toy.hidden_row(request.prompt_ids[:place])[0], request.prompt_ids[place])
        for place in range(1, len(request.prompt_ids))
    ]
    assert [token.logprobs for token in first.prompt] == [None, *expected]
    assert all(emission.prompt == () for emission in rest)
    ids = [token.id for emission in rest for token in emission.tokens]
    assert ids == toy.continuation(request.prompt_ids, request.max_tokens, request.sampling, request.noise)


@pytest.mark.parametrize("length", [1, 2, 16, 17, 83])
@pytest.mark.parametrize("max_tokens", [0, 1, 9])
async def test_every_prompt_token_is_scored_by_the_tokens_before_it(length: int, max_tokens: int) -> None:
    async with World() as world:
        request = request_of(PROMPT[:length], max_tokens)
        told = await emissions(world, request)
        check(told, request)
        assert told[-1].finish_reason is not None
        await world.until_nothing_is_held()


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("fault", [Fault.LOST, Fault.REFUSE, Fault.NONSENSE, Fault.DIE])
async def test_one_fault_changes_no_logprob(unit: str, fault: Fault) -> None:
    contract, engine = UNITS[unit]
    script = iter([None, None, fault])
    async with World(**{unit: [FakeUnit(contract, engine, lambda: next(script, None))]}) as world:  # type: ignore[arg-type]
        request = request_of(PROMPT, 5)
        check(await emissions(world, request), request)
        assert next(script, "struck") == "struck"


@pytest.mark.parametrize("seed", range(4))
async def test_random_faults_change_no_logprob(seed: int) -> None:
    kinds = (Fault.LOST, Fault.REFUSE, Fault.NONSENSE, Fault.DIE)
    units = {
        unit: [FakeUnit(contract, engine, RandomChaos(10 * seed + number, 0.1, kinds)) for number in range(2)]
        for unit, (contract, engine) in UNITS.items()
    }
    async with World(settings=fast_settings(max_rebuilds=30), **units) as world:  # type: ignore[arg-type]
        request = request_of(PROMPT, 5)
        check(await emissions(world, request), request)
        await world.until_nothing_is_held()
