"""The engine over fake units: whatever the mode and whatever the units do, the tokens are the toy model's own."""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hetspec.decoding.sampling import NoiseKey, Sampling
from hetspec.rpc.contracts import DRAFT, VERIFY, WALK
from orchestrator.engine.errors import ContextTooLong, DeadlineExceeded, RequestFailed, UnitsUnavailable
from orchestrator.engine.request import EmittedToken, FinishReason, GenerationRequest, Mode, Statistics
from orchestrator.units.batcher import Batcher
from tests import toy
from tests.fakes import (
    MAX_CONTEXT,
    FakeDrafter,
    FakeSampler,
    FakeUnit,
    FakeVerifier,
    Fault,
    PerfectDrafter,
    RandomChaos,
    World,
    fast_settings,
)
from tests.faults.proxy import Proxy

GREEDY = Sampling()


def request_of(
    prompt: tuple[int, ...] = (1, 2, 3),
    mode: Mode = Mode.TREE,
    max_tokens: int = 12,
    sampling: Sampling = GREEDY,
    seed: int = 0,
    **fields: object,
) -> GenerationRequest:
    values = {"max_nodes": 12, "max_depth": 4} | fields
    return GenerationRequest(
        "r",
        prompt,
        sampling,
        NoiseKey(seed),
        max_tokens,
        mode,
        **values,  # type: ignore[arg-type]
    )


@dataclass(frozen=True)
class Answer:
    text: str
    tokens: list[EmittedToken]
    finish_reason: FinishReason | None
    statistics: Statistics

    @property
    def ids(self) -> list[int]:
        return [token.id for token in self.tokens]


async def answer(world: World, request: GenerationRequest) -> Answer:
    text, tokens, finish_reason = "", [], None
    async with aclosing(world.engine.generate(request)) as generation:
        async for emission in generation:
            text += emission.text
            tokens += emission.tokens
            finish_reason = emission.finish_reason
    return Answer(text, tokens, finish_reason, generation.statistics)


def expected(request: GenerationRequest) -> list[int]:
    return toy.continuation(request.prompt_ids, request.max_tokens, request.sampling, request.noise)


requests = st.builds(
    request_of,
    prompt=st.lists(st.integers(0, toy.END_ID - 1), min_size=1, max_size=70).map(tuple),
    mode=st.sampled_from(Mode),
    max_tokens=st.integers(1, 20),
    sampling=st.sampled_from((GREEDY, Sampling(temperature=0.8))),
    seed=st.integers(0, 1000),
    max_nodes=st.integers(1, 40),
    max_depth=st.integers(1, 8),
)


@given(st.lists(requests, min_size=1, max_size=6))
@settings(max_examples=15)
def test_every_mode_emits_the_tokens_of_plain_decoding(asked: list[GenerationRequest]) -> None:
    async def scenario() -> None:
        async with World() as world:
            answers = await asyncio.gather(*(answer(world, request) for request in asked))
            assert [a.ids for a in answers] == [expected(request) for request in asked]
            await world.until_nothing_is_held()

    asyncio.run(scenario())


async def test_drafts_are_accepted_and_counted() -> None:
    async with World() as world:
        for mode in (Mode.CHAIN, Mode.TREE):
            request = request_of((1, 2, 3, 4), mode, max_tokens=60, seed=3, sampling=Sampling(1.0))
            got = await answer(world, request)
            counted = got.statistics
            assert 0 < counted.accepted <= counted.verified == counted.drafted
            assert counted.emitted == len(got.ids) == counted.accepted + counted.rounds  # a bonus in every round


async def test_chain_of_a_perfect_draft_is_accepted_whole() -> None:
    async with World(drafters=[FakeUnit(DRAFT, PerfectDrafter)]) as world:
        request = long_request(Mode.CHAIN, max_tokens=20, max_depth=4)
        statistics = (await answer(world, request)).statistics
        assert statistics.accept_length == 5
        assert statistics.drafted == statistics.accepted == 16


def long_request(mode: Mode, max_tokens: int, **fields: object) -> GenerationRequest:
    """One that no end token cuts short."""
    for first in range(toy.END_ID):
        request = request_of((first, 5), mode, max_tokens, **fields)  # type: ignore[arg-type]
        if toy.END_ID not in expected(request):
            return request
    raise AssertionError("the toy model ends every text")


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("max_tokens", range(1, 10))
async def test_max_tokens_is_exact(mode: Mode, max_tokens: int) -> None:
    async with World(drafters=[FakeUnit(DRAFT, PerfectDrafter)]) as world:
        got = await answer(world, long_request(mode, max_tokens))
        assert len(got.ids) == max_tokens
        assert got.finish_reason == "length"


async def test_draft_is_no_deeper_than_the_tokens_left_before_the_bonus() -> None:
    async with World(drafters=[FakeUnit(DRAFT, PerfectDrafter)]) as world:
        got = await answer(world, long_request(Mode.CHAIN, max_tokens=7, max_depth=4))
        assert (got.statistics.rounds, got.statistics.drafted) == (2, 4 + 1)


async def test_output_may_fill_the_context_and_no_more() -> None:
    async with World(drafters=[FakeUnit(DRAFT, PerfectDrafter)]) as world:
        prompt = tuple(random.Random(1).choices(range(6), k=MAX_CONTEXT - 8))
        request = request_of(prompt, Mode.TREE, max_tokens=8, max_nodes=30)
        assert (await answer(world, request)).ids == expected(request)
        engine = world.verifiers[0].engine
        assert engine.peak_context <= MAX_CONTEXT
        with pytest.raises(ContextTooLong, match="do not fit the context of 512"):
            world.engine.generate(request_of(prompt, max_tokens=9))


async def test_end_token_is_emitted_without_text() -> None:
    async with World() as world:
        for first in range(toy.END_ID):
            request = request_of((first, 5), max_tokens=40)
            ids = expected(request)
            if ids[-1] == toy.END_ID:
                break
        got = await answer(world, request)
        assert got.ids == ids
        assert got.finish_reason == "stop"
        assert got.text == "".join(toy.LETTERS[token] for token in ids[:-1])


@pytest.mark.parametrize("mode", Mode)
async def test_stop_string_inside_an_accepted_block_cuts_text_ids_and_logprobs_together(mode: Mode) -> None:
    async with World(drafters=[FakeUnit(DRAFT, PerfectDrafter)]) as world:
        whole = long_request(mode, max_tokens=20, max_depth=8)
        ids = expected(whole)
        text = "".join(toy.LETTERS[token] for token in ids)
        for at in range(1, 10):
            stop = text[at : at + 3]
            end = text.index(stop) + 3
            request = request_of(whole.prompt_ids, mode, 20, max_depth=8, stop=(stop,), top_logprobs=0)
            got = await answer(world, request)
            assert got.text == text[: end - 3]
            assert got.ids == ids[:end]
            assert [token.logprobs and token.logprobs.logprob for token in got.tokens] == [-float(i) for i in ids[:end]]
            assert got.finish_reason == "stop"
        await world.until_nothing_is_held()


FAULTS_OF = {
    "verifier": (VERIFY, FakeVerifier, "verifiers"),
    "drafter": (DRAFT, FakeDrafter, "drafters"),
    "sampler": (WALK, FakeSampler, "samplers"),
}


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("unit", FAULTS_OF)
async def test_one_fault_of_a_unit_changes_no_token(unit: str, fault: Fault) -> None:
    contract, engine, role = FAULTS_OF[unit]
    script = iter([None, None, fault])
    # Whichever serves the third task; where it freezes, there must be another one.
    units = [FakeUnit(contract, engine, lambda: next(script, None)) for _ in range(2 if fault is Fault.FREEZE else 1)]
    async with World(**{role: units}) as world:  # type: ignore[arg-type]
        request = long_request(Mode.TREE, max_tokens=24)
        assert (await answer(world, request)).ids == expected(request)
        assert next(script, "struck") == "struck"
        for each in units:
            each.engine.thaw()
        await world.until_nothing_is_held()


@given(st.integers(0, 2**32), st.lists(requests, min_size=1, max_size=5))
@settings(max_examples=12)
def test_units_that_fail_at_random_change_no_token_and_keep_nothing(seed: int, asked: list[GenerationRequest]) -> None:
    kinds = (Fault.LOST, Fault.REFUSE, Fault.NONSENSE, Fault.DIE)

    def unit(name: str, number: int) -> FakeUnit:
        contract, engine, _ = FAULTS_OF[name]
        return FakeUnit(contract, engine, RandomChaos(seed + number, 0.06, kinds))

    async def scenario() -> None:
        world = World(
            verifiers=[unit("verifier", 1), unit("verifier", 2)],
            drafters=[unit("drafter", 3)],
            samplers=[unit("sampler", 4), unit("sampler", 5)],
            settings=fast_settings(max_rebuilds=30),
        )
        async with world:
            answers = await asyncio.gather(*(answer(world, request) for request in asked))
            assert [a.ids for a in answers] == [expected(request) for request in asked]
            await world.until_nothing_is_held()

    asyncio.run(scenario())


# A sampler has no sessions to lose.
DEADLY = [(unit, fault) for unit in ("verifier", "sampler") for fault in (Fault.REFUSE, Fault.NONSENSE, Fault.DIE)]


@pytest.mark.parametrize(("unit", "fault"), [*DEADLY, ("verifier", Fault.LOST)])
async def test_a_request_that_keeps_failing_is_given_up_after_three_rebuilds(unit: str, fault: Fault) -> None:
    contract, engine, role = FAULTS_OF[unit]
    struck: list[Fault] = []

    def always() -> Fault:
        struck.append(fault)
        return fault

    # The prompt is two chunks, so that a verifier which forgets everything is found out at the second one.
    async with World(**{role: [FakeUnit(contract, engine, always)]}) as world:  # type: ignore[arg-type]
        with pytest.raises(RequestFailed, match="given up after 3 rebuilds without progress: "):
            await answer(world, request_of(tuple([1] * 20), Mode.PLAIN))
        assert len(struck) == 8 if fault is Fault.LOST else 4
        await world.until_nothing_is_held()


async def test_without_a_drafter_requests_are_served_all_the_same() -> None:
    async with World() as world:
        await world.drafters[0].close()
        request = long_request(Mode.TREE, max_tokens=10)
        got = await answer(world, request)
        assert got.ids == expected(request)
        assert got.statistics.drafted == 0


async def test_a_drafter_that_fails_is_asked_less_and_less() -> None:
    async with World(drafters=[FakeUnit(DRAFT, FakeDrafter, lambda: Fault.REFUSE)]) as world:
        request = long_request(Mode.TREE, max_tokens=40)
        assert (await answer(world, request)).ids == expected(request)
        assert len(world.drafters[0].engine.passes) == 6  # in rounds 1, 3, 6, 11, 20 and 37


async def test_missing_verifier_is_waited_for_no_longer_than_allowed() -> None:
    async with World(settings=fast_settings(wait_s=0.2)) as world:
        generation = world.engine.generate(long_request(Mode.PLAIN, 40))
        await anext(generation)
        await world.verifiers[0].close()
        with pytest.raises(UnitsUnavailable, match=r"no verifier for 0\.2 s"):
            async for _ in generation:
                pass


async def test_deadline_ends_a_request_and_frees_its_units() -> None:
    async with World() as world:
        world.verifiers[0].engine.gate.clear()
        request = request_of(deadline=asyncio.get_running_loop().time() + 0.1)
        with pytest.raises(DeadlineExceeded):
            await answer(world, request)
        await world.until_nothing_is_held()


@given(st.lists(st.tuples(requests, st.integers(0, 40)), min_size=2, max_size=8), st.integers(0, 2**32))
@settings(max_examples=12)
def test_cancels_at_random_moments_leave_nothing_behind(asked: list[tuple[GenerationRequest, int]], seed: int) -> None:
    async def scenario() -> None:
        async with World() as world:
            running = [asyncio.create_task(answer(world, request)) for request, _ in asked]
            for task, (_, steps) in zip(running, asked, strict=True):
                for _ in range(steps):
                    await asyncio.sleep(0.0003)
                if random.Random(seed + steps).random() < 0.7:
                    task.cancel()
            ended = await asyncio.gather(*running, return_exceptions=True)
            for (request, _), result in zip(asked, ended, strict=True):
                assert isinstance(result, asyncio.CancelledError) or result.ids == expected(request)
            await world.until_nothing_is_held()

    asyncio.run(scenario())


async def test_left_early_a_generation_frees_its_units() -> None:
    async with World() as world:
        async with aclosing(world.engine.generate(long_request(Mode.TREE, 30))) as generation:
            await anext(generation)
            assert world.verifiers[0].held
            assert world.drafters[0].held
        await world.until_nothing_is_held()
        with pytest.raises(StopAsyncIteration):
            await anext(generation)


async def test_rebuilt_session_stays_on_equal_digests() -> None:
    other = FakeUnit(VERIFY, FakeVerifier, digest="other")
    async with World(verifiers=[FakeUnit(VERIFY, FakeVerifier), other], settings=fast_settings(wait_s=0.2)) as world:
        await world.until(lambda: world.engine.replicas()["verifier"] == 2)
        digest = world.engine.description.digests["verifier"]
        first = next(unit for unit in world.verifiers if unit.digest == digest)
        generation = world.engine.generate(long_request(Mode.PLAIN, 30))
        await anext(generation)
        await first.close()
        with pytest.raises(UnitsUnavailable):
            async for _ in generation:
                pass
        assert not any(unit.engine.passes for unit in world.verifiers if unit is not first)


async def test_a_decoder_ends_while_a_long_prompt_beside_it_is_still_being_read() -> None:
    async with World() as world:
        prompt = tuple(random.Random(2).choices(range(6), k=480))  # 30 chunks
        long = asyncio.create_task(answer(world, request_of(prompt, Mode.PLAIN, max_tokens=1)))
        await asyncio.sleep(0)
        request = long_request(Mode.PLAIN, max_tokens=5)
        assert (await answer(world, request)).ids == expected(request)
        assert not long.done()
        assert (await long).ids == expected(request_of(prompt, max_tokens=1))


class Reached(FakeUnit):
    """Through a proxy."""

    proxy: Proxy | None = None

    @property
    def address(self) -> str:
        return super().address if self.proxy is None else self.proxy.address

    async def start(self) -> None:
        await super().start()
        self.proxy = Proxy(self.port)
        await self.proxy.start()

    async def close(self) -> None:
        assert self.proxy is not None
        await self.proxy.close()
        await super().close()


async def test_a_request_is_not_blamed_for_a_unit_that_was_only_out_of_reach() -> None:
    """Its connection breaks under each of the first six passes; the unit itself lives on."""
    unit = Reached(VERIFY, FakeVerifier)
    async with World(verifiers=[unit]) as world:
        run, left, loop = unit.engine.run, [0] * 6, asyncio.get_running_loop()

        def cut_off(items: Any, should_stop: Any) -> Any:
            if left:
                left.pop()
                assert unit.proxy is not None
                loop.call_soon_threadsafe(unit.proxy.break_off)
                while not should_stop():
                    time.sleep(0.005)
            return run(items, should_stop)

        unit.engine.run = cut_off  # type: ignore[method-assign]
        request = long_request(Mode.PLAIN, max_tokens=8)
        assert (await answer(world, request)).ids == expected(request)
        assert left == []
        await world.until_nothing_is_held()


async def test_a_unit_that_refuses_everything_for_a_second_loses_no_request() -> None:
    until = time.monotonic() + 1.0
    refusing = FakeUnit(VERIFY, FakeVerifier, lambda: Fault.REFUSE if time.monotonic() < until else None)
    async with World(verifiers=[refusing]) as world:
        request = long_request(Mode.PLAIN, max_tokens=4)
        assert (await answer(world, request)).ids == expected(request)


async def test_an_answer_that_this_side_cannot_handle_leaves_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    hand_out, failures = Batcher._hand_out, iter([True, True])

    def failing(self: Any, *args: Any) -> None:
        if next(failures, False):
            raise LookupError("a fault of this side")
        hand_out(self, *args)

    monkeypatch.setattr(Batcher, "_hand_out", failing)
    async with World() as world, asyncio.timeout(20):
        request = request_of()
        assert (await answer(world, request)).ids == expected(request)
    assert next(failures, None) is None
