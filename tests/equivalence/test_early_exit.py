"""Nodes that leave the target's pass early change no token, however many leave: the predictor here knows nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from hetspec.hardware.cost_as import parse_cost_as
from hetspec.hardware.profile import changed, load_profile
from orchestrator.clock.settings import WorldSettings
from orchestrator.policies.mode import Part
from tests.early_exit_artefact import make_early_exit
from tests.equivalence.agreeing_draft import make_agreeing_draft, make_forgetful_target
from tests.schemas import grammar_of, random_schema
from tests.system import Answer, Ask, Setup, System

STATIC = frozenset({Part.COST_TREE, Part.NO_DRAFT, Part.CALIBRATION})  # off: a tree, or a chain, of its bounds alone
CHAIN, TREE = 5, 24  # nodes
LAYERS, EXIT, THRESHOLD = 4, 1, -2.2


def asks_of(count: int, shared: tuple[int, ...] = ()) -> list[Ask]:
    """Chains and trees, at both temperatures; every third without early exit, every fourth with the whole head."""
    return [
        Ask(
            (*shared, *range(20 + seed, 50 + 3 * seed)),
            "lever",
            24,
            0.8 * (seed % 2),
            seed,
            max_nodes=(CHAIN, TREE)[seed // 2 % 2],
            max_depth=6,
            disabled=STATIC
            | (frozenset({Part.EARLY_EXIT}) if seed % 3 == 2 else frozenset())
            | (frozenset({Part.LAZY_HEAD}) if seed % 4 == 3 else frozenset()),
        )
        for seed in range(count)
    ]


def plain_of(asks: Sequence[Ask]) -> list[Ask]:
    return [replace(ask, mode="plain", disabled=frozenset()) for ask in asks]


def emitted(answers: Sequence[Answer]) -> list[list[int]]:
    return [answer.tokens for answer in answers]


def check_counts(asks: Sequence[Ask], answers: Sequence[Answer]) -> None:
    """Every node is accounted for; some left, some of the rest were accepted; where none may leave, none did."""
    for ask, answer in zip(asks, answers, strict=True):
        told = answer.statistics
        assert told.drafted == told.verified >= told.pruned + told.accepted
        assert told.pruned == 0 or Part.EARLY_EXIT not in ask.disabled
    assert sum(answer.statistics.pruned for answer in answers) > 20
    assert sum(answer.statistics.accepted for answer in answers) > 20


@pytest.fixture(scope="module")
def early_exit(tiny: Path, cache_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_early_exit(tmp_path_factory.mktemp("exit"), tiny, cache_dir, EXIT, THRESHOLD)


@pytest.mark.parametrize(
    ("precision", "dram_budget"),
    [("int8", "0"), ("float32", "0"), ("int8", "25%")],
    ids=["int8", "float32", "streamed"],
)
async def test_every_answer_is_what_plain_decoding_says(
    precision: str, dram_budget: str, tiny: Path, early_exit: Path, cache_dir: Path
) -> None:
    asks = asks_of(12)
    setup = Setup(
        tiny,
        cache_dir,
        draft=tiny,
        precision=precision,
        dram_budget=dram_budget,
        chunk_tokens=16,
        early_exit=early_exit,
    )
    async with System(setup) as system:
        expected = emitted(await system.generate_all(plain_of(asks)))
        for at_once in (1, 8):
            answers = await system.generate_all(asks, at_once)
            assert emitted(answers) == expected
            check_counts(asks, answers)
        sized = [replace(ask, disabled=ask.disabled - STATIC) for ask in asks]
        assert emitted(await system.generate_all(sized)) == expected
        await system.until_nothing_is_held()


async def test_a_draft_that_reads_the_targets_rows_changes_no_token(
    cache_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    target = make_forgetful_target(tmp_path_factory.mktemp("forgetful"))
    draft = make_agreeing_draft(tmp_path_factory.mktemp("agreeing"), target, head_vocab_size=330)
    folder = make_early_exit(tmp_path_factory.mktemp("exit"), target, cache_dir, EXIT, THRESHOLD)
    asks = asks_of(12)
    async with System(Setup(target, cache_dir, draft=draft, early_exit=folder)) as system:
        expected = emitted(await system.generate_all(plain_of(asks)))
        answers = await system.generate_all(asks)
        await system.until_nothing_is_held()
    assert emitted(answers) == expected
    check_counts(asks, answers)


async def test_what_was_shared_before_is_taken_over(tiny: Path, early_exit: Path, cache_dir: Path) -> None:
    asks = asks_of(8, shared=tuple(range(5, 90)))
    async with System(Setup(tiny, cache_dir, draft=tiny, prefix_tokens="50%", early_exit=early_exit)) as system:
        expected = emitted(await system.generate_all(plain_of(asks), 1))
        for _ in range(2):
            answers = await system.generate_all(asks, 1)
            assert emitted(answers) == expected
    check_counts(asks, answers)
    assert all(answer.statistics.cached_tokens > 0 for answer in answers)


async def test_under_a_grammar_too(tiny: Path, early_exit: Path, cache_dir: Path) -> None:
    asks = [replace(ask, max_tokens=40, grammar=grammar_of(random_schema(ask.seed))) for ask in asks_of(8)]
    async with System(Setup(tiny, cache_dir, draft=tiny, early_exit=early_exit)) as system:
        expected = emitted(await system.generate_all(plain_of(asks)))
        answers = await system.generate_all(asks)
    assert emitted(answers) == expected
    assert sum(answer.statistics.pruned for answer in answers) > 0


@pytest.mark.parametrize(("rate", "leave"), [("45 TOPS", False), ("2 TOPS", True)])
async def test_nodes_of_sized_trees_leave_where_computing_binds_and_not_where_flash_hides_it(
    rate: str, leave: bool, tiny: Path, cache_dir: Path, tmp_path: Path
) -> None:
    """The predictor claims what a good one keeps, and is found out: it is not asked for long."""
    folder = make_early_exit(tmp_path / "exit", tiny, cache_dir, EXIT, THRESHOLD, recall=0.995)
    phone = changed(load_profile("oneplus12"), {"devices.npu.arithmetic.int8.rate": rate})
    world = WorldSettings(phone, parse_cost_as("llama2-7b:int4+llama3.2-1b:int4"))
    asks = [Ask(tuple(range(20 + seed, 60 + seed)), "lever", 24, seed=seed) for seed in range(3)]
    async with System(Setup(tiny, cache_dir, draft=tiny, early_exit=folder, world=world)) as system:
        expected = emitted(await system.generate_all(plain_of(asks)))
        answers = await system.generate_all(asks, 1)
        (unsized,) = await system.generate_all([replace(asks[0], max_nodes=TREE, disabled=STATIC)])
    assert emitted(answers) == expected
    assert (sum(answer.statistics.pruned for answer in answers) > 0) is leave
    assert unsized.statistics.pruned > 0  # what its rows cost is not told


async def test_without_a_predictor_nothing_leaves(tiny: Path, cache_dir: Path) -> None:
    asks = asks_of(4)
    async with System(Setup(tiny, cache_dir, draft=tiny)) as system:
        assert (await system.describe("verifier")).exit_layer == 0
        answers = await system.generate_all(asks)
    assert all(answer.statistics.pruned == 0 < answer.statistics.accepted for answer in answers)
