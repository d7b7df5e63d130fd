"""A conversation's next turn takes over the KV of the turns before, all of it, and says the same as without."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import AsyncExitStack, aclosing
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from hetspec.decoding.sampling import NoiseKey
from hetspec.model.forward import PAGE
from hetspec.model.transformer import Rows, RowTable, Span, Transformer
from hetspec.rpc.contracts import VERIFY
from hetspec.rpc.unit import UnitService
from orchestrator.engine.engine import Engine
from tests.equivalence.conversation import TURNS, converse
from tests.system import (
    Ask,
    Processes,
    Requests,
    Setup,
    System,
    engine_settings,
    serving,
    until,
    until_async,
    verifier_settings,
)
from verifier import unit as verifier_unit

MODES = ("plain", "chain", "tree", "lever", "ahasd", "full")
TEMPERATURES = (0.0, 0.8)


def value_of(system: Requests, name: str, unit: str = "verifier", **labels: str) -> float:
    return system.registry.get_sample_value(f"hetspec_prefix_{name}", {"unit": unit} | labels) or 0.0


async def until_only_entries_are_held(system: Requests) -> None:
    """The verifier's pages are counted exactly on this side; the drafter may not have had room for all of a tree."""

    async def is_so() -> bool:
        verifier, drafter = await system.describe("verifier"), await system.describe("drafter")
        return bool(
            verifier.sessions == value_of(system, "entries")
            and verifier.kv_held_tokens == value_of(system, "held_tokens")
            and drafter.sessions == value_of(system, "entries", "drafter")
            and drafter.kv_held_tokens <= value_of(system, "held_tokens", "drafter")
        )

    await until_async(is_so)


CASES = list(itertools.product(MODES, TEMPERATURES))


@pytest.mark.parametrize("precision", ["int8", "float32"])
async def test_conversations_say_the_same_with_and_without_the_cache(
    precision: str, tiny: Path, cache_dir: Path
) -> None:
    setup = Setup(tiny, cache_dir, draft=tiny, precision=precision, chunk_tokens=24)
    async with System(setup) as bare:
        expected = [await converse(bare, mode, temperature, n) for n, (mode, temperature) in enumerate(CASES)]
        await bare.until_nothing_is_held()
    assert not any(turn.cached for turns in expected for turn in turns)
    async with System(replace(setup, prefix_tokens="50%")) as system:
        conversations = [converse(system, mode, temperature, n) for n, (mode, temperature) in enumerate(CASES)]
        found = [await conversations[0], *await asyncio.gather(*conversations[1:])]
        await until_only_entries_are_held(system)
        assert value_of(system, "hits_total", "drafter") > 0
    for turns, same in zip(expected, found, strict=True):
        assert [turn.tokens for turn in turns] == [turn.tokens for turn in same]
        assert [turn.cached for turn in same] == [turn.predicted for turn in same]


async def test_a_budget_smaller_than_a_session_keeps_nothing_and_changes_nothing(tiny: Path, cache_dir: Path) -> None:
    setup = Setup(tiny, cache_dir, prefix_tokens=str(PAGE))
    async with System(setup) as system:
        turns = await converse(system, "tree", 0.8, 1)
        assert [turn.cached for turn in turns] == [0] * len(TURNS)
        await system.until_nothing_is_held()


async def test_entries_make_room_before_a_unit_refuses(tiny: Path, cache_dir: Path) -> None:
    """Each conversation fills a good half of the unit: what is kept of the others would not fit beside it."""
    setup = Setup(tiny, cache_dir, draft=tiny, max_context=256, kv_tokens=320, prefix_tokens="100%")
    async with System(setup) as system:
        for seed in range(4):
            first = Ask(tuple(3 + (seed + i * 7) % 290 for i in range(150)), "tree", 20, seed=seed)
            answers = [await system.generate(first), await system.generate(first)]
            assert answers[0].tokens == answers[1].tokens
            assert [answer.statistics.cached_tokens for answer in answers] == [0, 149]
            assert [answer.statistics.rebuilds for answer in answers] == [0, 0]
        assert value_of(system, "evictions_total", reason="room") > 0
        assert value_of(system, "evictions_total", reason="exhausted") == 0
        await until_only_entries_are_held(system)


async def test_of_an_aborted_request_nothing_is_held_or_reused(tiny: Path, cache_dir: Path) -> None:
    async with System(Setup(tiny, cache_dir, draft=tiny, prefix_tokens="50%")) as system:
        ask = Ask(tuple(range(10, 110)), "tree", 40)
        async with aclosing(system.engine.generate(ask.request())) as generation:
            await anext(generation)
            await anext(generation)
        await system.until_nothing_is_held()
        assert (await system.generate(ask)).statistics.cached_tokens == 0


@pytest.mark.parametrize("prefix_tokens", ["0", "50%"])
async def test_choices_of_one_prompt_share_its_rows(
    prefix_tokens: str, tiny: Path, cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows: list[int] = []
    run = Transformer.run

    def counted(self: Transformer, spans: list[Span], *rest: object) -> tuple[Rows, RowTable]:
        rows.append(sum(span.rows for span in spans))
        return run(self, spans, *rest)  # type: ignore[arg-type]

    async with System(Setup(tiny, cache_dir, prefix_tokens=prefix_tokens)) as system:
        ask = Ask(tuple(range(10, 10 + 5 * PAGE)), "plain", 10, 0.8, seed=7)
        choices = [replace(ask.request(), noise=NoiseKey(7, 0, index)) for index in range(4)]

        async def tokens_of(index: int) -> tuple[list[int], int]:
            generation = system.engine.generate(choices[index])
            tokens = [token.id async for emission in generation for token in emission.tokens]
            return tokens, generation.statistics.cached_tokens

        monkeypatch.setattr(Transformer, "run", counted)
        answers = await asyncio.gather(*(tokens_of(index) for index in range(4)))
        prompt, decoded = len(ask.prompt), sum(len(tokens) - 1 for tokens, _ in answers)
        assert sorted(cached for _, cached in answers) == [0, prompt - 1, prompt - 1, prompt - 1]
        assert sum(rows) == prompt + 3 + decoded
        assert len({tuple(tokens) for tokens, _ in answers}) > 1
        monkeypatch.undo()
    async with System(Setup(tiny, cache_dir)) as system:
        alone = [(await tokens_of(index))[0] for index in range(4)]
    assert [tokens for tokens, _ in answers] == alone


async def test_two_verifiers_and_conversations_at_once(tiny: Path, cache_dir: Path) -> None:
    setup = Setup(tiny, cache_dir, max_context=512)
    async with System(setup) as bare:
        expected = [await converse(bare, mode, temperature, n) for n, (mode, temperature) in enumerate(CASES)]
    async with AsyncExitStack() as stack:
        system = await stack.enter_async_context(System(setup))
        unit = UnitService(VERIFY, lambda: verifier_unit.load(verifier_settings(setup, system.addresses.weight_store)))
        second = await stack.enter_async_context(serving(unit))
        await system.engine.close()
        both = replace(system.addresses, verifier=f"{system.addresses.verifier},{second}")
        system.registry = CollectorRegistry()
        system.engine = Engine(both, engine_settings(prefix_tokens="50%"), system.registry)
        await system.engine.start()
        await until(lambda: all(system.engine.ready().values()) and system.engine.replicas()["verifier"] == 2, 60)
        found = await asyncio.gather(
            *(converse(system, mode, temperature, n) for n, (mode, temperature) in enumerate(CASES))
        )
        for address in both.verifier.split(","):
            system.addresses = replace(both, verifier=address)
            assert (await system.describe("verifier")).sessions > 0, "one of the verifiers was never used"
        assert value_of(system, "hits_total") >= len(CASES)
    for turns, same in zip(expected, found, strict=True):
        assert [turn.tokens for turn in turns] == [turn.tokens for turn in same]
        assert all(turn.cached <= turn.predicted for turn in same)  # less where it went to the one less busy


async def test_a_verifier_restarted_between_turns_costs_the_prefix_and_no_token(
    tiny: Path, cache_dir: Path, tmp_path: Path
) -> None:
    ask = Ask(tuple(range(10, 90)), "tree", 20, 0.8, seed=3)
    setup = Setup(tiny, cache_dir, draft=tiny, prefix_tokens="50%")
    async with Processes(setup, tmp_path) as processes:
        first = await processes.generate(ask)
        assert (await processes.generate(ask)).statistics.cached_tokens == len(ask.prompt) - 1
        processes.kill("verifier")
        await until(lambda: processes.engine.replicas()["verifier"] == 0)
        processes.start("verifier")
        await until(lambda: processes.engine.replicas()["verifier"] == 1, 120)
        after = await processes.generate(ask)
        assert after.tokens == first.tokens
        assert (after.statistics.cached_tokens, after.statistics.rebuilds) == (0, 0)
        assert (await processes.generate(ask)).statistics.cached_tokens == len(ask.prompt) - 1
        await until_only_entries_are_held(processes)
