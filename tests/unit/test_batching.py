"""compose_pass: what goes into the next pass."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.policies.batching import PassLimits, compose_pass, prompt_chunk_tokens


@dataclass(frozen=True)
class Item:
    name: int
    rows: int
    is_prompt: bool
    alone: bool = False


@st.composite
def queues(draw: st.DrawFn) -> list[Item]:
    kinds = draw(
        st.lists(st.tuples(st.integers(1, 40), st.booleans(), st.sampled_from([False] * 5 + [True])), max_size=12)
    )
    return [Item(name, rows, is_prompt, alone) for name, (rows, is_prompt, alone) in enumerate(kinds)]


limits = st.builds(PassLimits, st.integers(1, 64), st.integers(1, 64))


def rows_of(items: list[Item], prompts_only: bool = False) -> int:
    return sum(item.rows for item in items if item.is_prompt or not prompts_only)


@given(queues(), limits)
def test_split_keeps_every_item_once_and_in_order(waiting: list[Item], within: PassLimits) -> None:
    taken, left = compose_pass(waiting, within)
    assert sorted(taken + left, key=lambda item: item.name) == waiting
    assert taken == sorted(taken, key=lambda item: item.name)
    assert left == sorted(left, key=lambda item: item.name)


@given(queues(), limits)
def test_limits_hold_unless_the_oldest_alone_exceeds_them(waiting: list[Item], within: PassLimits) -> None:
    taken, _ = compose_pass(waiting, within)
    within_limits = rows_of(taken) <= within.max_rows and rows_of(taken, True) <= within.max_prompt_rows
    assert within_limits or taken[0].rows > min(within.max_rows, within.max_prompt_rows)


@given(queues(), limits)
def test_nothing_is_left_that_would_have_fitted(waiting: list[Item], within: PassLimits) -> None:
    taken, left = compose_pass(waiting, within)
    for item in left:
        before = [each for each in taken if each.name < item.name]
        too_many = rows_of(before) + item.rows > within.max_rows
        too_much_prompt = item.is_prompt and rows_of(before, True) + item.rows > within.max_prompt_rows
        alone = bool(before) and (item.alone or before[0].alone)
        assert too_many or too_much_prompt or alone


@given(queues(), limits)
def test_one_that_is_to_go_alone_does(waiting: list[Item], within: PassLimits) -> None:
    taken, _ = compose_pass(waiting, within)
    assert len(taken) <= 1 or not any(item.alone for item in taken)


@given(queues(), limits)
def test_every_item_goes_within_as_many_passes_as_there_are_items(waiting: list[Item], within: PassLimits) -> None:
    passes = 0
    while waiting:
        taken, waiting = compose_pass(waiting, within)
        passes += 1
        assert taken
    assert passes <= 12


def test_decoders_pass_beside_a_prompt_chunk_while_the_next_prompt_waits() -> None:
    waiting = [Item(0, 256, True), Item(1, 256, True), Item(2, 9, False), Item(3, 1, False)]
    taken, left = compose_pass(waiting, PassLimits(max_rows=1024, max_prompt_rows=256))
    assert [item.name for item in taken] == [0, 2, 3]
    assert [item.name for item in left] == [1]


@given(st.integers(1, 4096), st.integers(0, 9))
def test_a_prompt_comes_in_long_chunks_alone_and_in_short_ones_beside_others(most: int, sessions: int) -> None:
    chunk = prompt_chunk_tokens(most, sessions)
    assert chunk == most if sessions <= 1 else 1 <= chunk <= min(most, 64)
