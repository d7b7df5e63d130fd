"""The engine over fake units, one of them a drafter that reads the target's hidden rows and checks each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hetspec.decoding.constraint import Grammar, GrammarKind
from hetspec.decoding.sampling import NoiseKey, Sampling
from hetspec.rpc.contracts import DRAFT, VERIFY, WALK
from hetspec.rpc.messages import HiddenRows, HiddenStates, VerifyItem
from orchestrator.engine.request import GenerationRequest, Mode
from tests import toy
from tests.checked import answer, expected
from tests.fakes import (
    Chaos,
    FakeDrafter,
    FakeSampler,
    FakeUnit,
    FakeVerifier,
    Fault,
    FeatureDrafter,
    RandomChaos,
    World,
    fast_settings,
    no_chaos,
)

DEPTH = 3
PROMPT_CHUNK = fast_settings().prompt_chunk_tokens


class Asked(FakeVerifier):
    """Remembers which rows it was asked for, and for how many tokens."""

    def __init__(self, chaos: Chaos, on_death: Callable[[], object]) -> None:
        super().__init__(chaos, on_death)
        self.asked: list[HiddenRows] = []

    def serve(self, item: VerifyItem) -> HiddenStates:
        self.asked.append(item.hidden)
        return super().serve(item)


def request_of(prompt: tuple[int, ...], mode: Mode = Mode.CHAIN, max_tokens: int = 24) -> GenerationRequest:
    return GenerationRequest("r", prompt, Sampling(), NoiseKey(0), max_tokens, mode, 8, DEPTH, ignore_eos=False)


def long_request(prompt_tokens: int, mode: Mode = Mode.CHAIN, max_tokens: int = 24) -> GenerationRequest:
    """One that no end token cuts short."""
    for seed in range(100):
        prompt = tuple((seed + 5 * place) % toy.END_ID for place in range(prompt_tokens))
        request = request_of(prompt, mode, max_tokens)
        if toy.END_ID not in expected(request):
            return request
    raise AssertionError("the toy model ends every text")


def drafter(chaos: Chaos = no_chaos) -> FakeUnit:
    return FakeUnit(DRAFT, FeatureDrafter, chaos)


def drafters_of(world: World) -> list[FeatureDrafter]:
    engines = [engine for unit in world.drafters for engine in unit.engines]
    return [engine for engine in engines if isinstance(engine, FeatureDrafter)]


def check_rows(world: World) -> list[list[int]]:
    """Every row was the one before its token, and none was given twice. The positions of each session."""
    given: list[list[int]] = []
    for engine in drafters_of(world):
        assert engine.wrong == []
        given += engine.given.values()
    assert all(positions == sorted(set(positions)) for positions in given)
    return given


def rounds_of(tokens: int) -> int:
    """Where the first is drafted without rows, and all that is drafted behind it is accepted."""
    return 1 + -(-(tokens - 1) // (DEPTH + 1))


@pytest.mark.parametrize("prompt_tokens", [1, 2, PROMPT_CHUNK, PROMPT_CHUNK + 2, 5 * PROMPT_CHUNK + 3])
@pytest.mark.parametrize("mode", [Mode.CHAIN, Mode.TREE])
async def test_every_row_reaches_the_drafter_once_and_from_the_second_round_on_it_can_draft(
    prompt_tokens: int, mode: Mode
) -> None:
    async with World(drafters=[drafter()]) as world:
        request = long_request(prompt_tokens, mode)
        statistics = await answer(world, request)
        (given,) = check_rows(world)
        assert given == list(range(len(given)))  # from the prompt's first token on
        drafted_last_at = prompt_tokens + statistics.emitted - (DEPTH + 1)
        assert drafted_last_at - 2 <= given[-1] < prompt_tokens + statistics.emitted - 1
        if mode is Mode.CHAIN:
            assert statistics.rounds == rounds_of(statistics.emitted)
            assert statistics.accepted == statistics.drafted


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("reads", [False, True])
async def test_all_rows_are_asked_for_only_where_a_draft_reads_them(mode: Mode, reads: bool) -> None:
    verifier = FakeUnit(VERIFY, Asked)
    async with World([verifier], [drafter() if reads else FakeUnit(DRAFT, FakeDrafter)]) as world:
        statistics = await answer(world, long_request(PROMPT_CHUNK + 5, mode))
        assert isinstance(verifier.engine, Asked)
        if reads and mode is not Mode.PLAIN:
            assert set(verifier.engine.asked) == {HiddenRows.ALL}
        else:
            assert verifier.engine.asked == [HiddenRows.NONE] + [HiddenRows.LAST] * statistics.rounds


async def test_a_scored_prompt_gives_its_rows_before_the_first_round() -> None:
    async with World(drafters=[drafter()]) as world:
        request = long_request(3 * PROMPT_CHUNK)
        statistics = await answer(world, replace(request, top_logprobs=0, scores_prompt=True))
        assert statistics.rounds == -(-statistics.emitted // (DEPTH + 1))
        check_rows(world)


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.REFUSE, Fault.NONSENSE, Fault.DIE])
async def test_a_verifier_that_reads_all_again_sends_the_drafter_nothing_again(fault: Fault) -> None:
    script = iter([None] * 4 + [fault])
    verifier = FakeUnit(VERIFY, FakeVerifier, lambda: next(script, None))
    async with World([verifier], [drafter()]) as world:
        statistics = await answer(world, long_request(2 * PROMPT_CHUNK + 1, max_tokens=40))
        (given,) = check_rows(world)
        assert given == list(range(len(given)))
        assert statistics.rebuilds > 0
        assert statistics.rounds == rounds_of(statistics.emitted)


async def test_a_new_drafter_gets_the_rows_that_come_after_the_loss_of_the_first() -> None:
    script = iter([None] * 2 + [Fault.REFUSE])
    async with World(drafters=[drafter(lambda: next(script, None))]) as world:
        statistics = await answer(world, long_request(10, max_tokens=40))
        first, second = check_rows(world)
        # The first had drafted in rounds 2 and 3; what was found in its last one is there for the second.
        assert first == list(range(10 + DEPTH + 1))
        assert second == list(range(second[0], second[-1] + 1))
        assert second[0] == len(first)
        assert statistics.accepted == statistics.drafted


async def test_a_new_drafter_gets_all_rows_where_the_verifier_has_to_read_all_again() -> None:
    refusals, losses = iter([None] * 2 + [Fault.REFUSE]), iter([None] * 3 + [Fault.LOST])
    verifier = FakeUnit(VERIFY, FakeVerifier, lambda: next(losses, None))
    async with World([verifier], [drafter(lambda: next(refusals, None))]) as world:
        await answer(world, long_request(10, max_tokens=40))
        first, second = check_rows(world)
        assert first == list(range(10 + DEPTH + 1))
        assert second == list(range(len(second)))
        assert len(second) > len(first)


async def test_a_session_that_begins_with_what_others_have_read_gives_the_rows_that_come() -> None:
    async with World(drafters=[drafter()], settings=fast_settings(prefix_tokens="50%")) as world:
        request = long_request(4 * PROMPT_CHUNK)
        await answer(world, request)
        again = await answer(world, request)
        assert again.cached_tokens == 4 * PROMPT_CHUNK - 2
        assert again.rounds == rounds_of(again.emitted)
        _, given = check_rows(world)
        assert given[0] == again.cached_tokens


async def test_in_the_next_turn_the_new_rows_join_those_that_the_drafter_has() -> None:
    """A row that is missing between them would cost the draft model all that it has read."""
    async with World(drafters=[drafter()], settings=fast_settings(prefix_tokens="50%")) as world:
        first = long_request(2 * PROMPT_CHUNK, max_tokens=1 + 4 * (DEPTH + 1))  # the last round drafts like the others
        assert (await answer(world, first)).rounds == 5
        said = (*first.prompt_ids, *expected(first))
        second = next(
            request
            for extra in range(toy.END_ID)
            if toy.END_ID not in expected(request := request_of((*said, extra, 3), max_tokens=12))
        )
        statistics = await answer(world, second)
        assert len(said) - (DEPTH + 2) <= statistics.cached_tokens < len(said)
        (engine,) = drafters_of(world)
        held = [*engine.held.values()][-1]
        assert held == set(range(max(held) + 1))
        assert max(held) > len(said)


async def test_the_first_token_waits_for_no_draft_but_one_that_a_grammar_makes() -> None:
    async with World(drafters=[drafter()]) as world:
        unit = world.drafters[0].engine
        async with aclosing(world.engine.generate(long_request(12))) as generation:
            await anext(generation)
            assert unit.passes == []
            await anext(generation)
            assert unit.passes == [1]
        grammar = Grammar(GrammarKind.REGEX, "a*")
        async with aclosing(world.engine.generate(replace(long_request(12), grammar=grammar))) as generation:
            await anext(generation)
            assert unit.passes == [1, 1]


async def test_rows_are_no_concern_of_a_drafter_that_joins_without_reading_them() -> None:
    """The session has begun to keep rows for one that is lost; the next is another model."""
    first, second = drafter(), FakeUnit(DRAFT, FakeDrafter)
    async with World(drafters=[first, second]) as world:
        await world.until(lambda: world.engine.replicas()["drafter"] == 2)
        request = long_request(12, Mode.TREE, max_tokens=40)
        asking = [asyncio.create_task(answer(world, request)) for _ in range(2)]  # one at each
        await asyncio.sleep(0.01)
        await first.close()
        await asyncio.gather(*asking)
        check_rows(world)


requests = st.builds(
    request_of,
    prompt=st.lists(st.integers(0, toy.END_ID - 1), min_size=1, max_size=70).map(tuple),
    mode=st.sampled_from((Mode.CHAIN, Mode.TREE)),
    max_tokens=st.integers(1, 30),
)


@given(st.integers(0, 2**32), st.lists(requests, min_size=1, max_size=5), st.sampled_from(("0", "50%")))
@settings(max_examples=15)
def test_units_that_fail_at_random_put_no_row_in_a_wrong_place(
    seed: int, asked: list[GenerationRequest], prefix_tokens: str
) -> None:
    kinds = (Fault.LOST, Fault.REFUSE, Fault.NONSENSE, Fault.DIE)

    def chaos(number: int) -> RandomChaos:
        return RandomChaos(seed + number, 0.06, kinds)

    async def scenario() -> None:
        world = World(
            [FakeUnit(VERIFY, FakeVerifier, chaos(number)) for number in range(2)],
            [drafter(chaos(number)) for number in (2, 3)],
            [FakeUnit(WALK, FakeSampler, chaos(4))],
            settings=fast_settings(max_rebuilds=30, prefix_tokens=prefix_tokens),
        )
        async with world:
            await asyncio.gather(*(answer(world, request) for request in asked))
            check_rows(world)
            if prefix_tokens == "0":
                await world.until_nothing_is_held()

    asyncio.run(scenario())
