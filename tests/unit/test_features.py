"""Features against the plain record of everything that was ever said to them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from orchestrator.engine.features import Features

WIDTH = 2
MAX_ROWS = 6
MAX_POSITION = 14


def row(position: int, version: int = 0) -> bytes:
    return np.array([position, version], "<f4").tobytes()


def rows(first: int, count: int) -> bytes:
    return b"".join(row(position) for position in range(first, first + count))


class AgainstAPlainRecord(RuleBasedStateMachine):
    """The record: which positions were told, in which order, and how far the drafter has them."""

    def __init__(self) -> None:
        super().__init__()
        self.features = Features(4 * WIDTH, MAX_ROWS)
        self.held: list[int] = []
        self.given = 0

    @rule(first=st.integers(0, MAX_POSITION), count=st.integers(0, 5))
    def add(self, first: int, count: int) -> None:
        self.features.add(first, rows(first, count))
        self._take(range(first, first + count))

    @rule(first=st.integers(1, MAX_POSITION), nodes=st.lists(st.integers(0, 7), unique=True, max_size=4).map(sorted))
    def add_accepted(self, first: int, nodes: list[int]) -> None:
        tree = [row(-1) for _ in range(8)]
        for place, node in enumerate(nodes):
            tree[node] = row(first + place)
        self.features.add_accepted(first, row(first - 1) + b"".join(tree), nodes)
        self._take(range(first, first + len(nodes)))

    @rule(length=st.integers(1, MAX_POSITION + 1))
    def gave(self, length: int) -> None:
        self.features.gave(length)
        self.given = max(self.given, length - 1)
        self.held = [position for position in self.held if position >= self.given]

    @precondition(lambda self: self.given)
    @rule()
    def begin_again(self) -> None:
        self.features.begin_again()
        self.given = 0

    @invariant()
    def before_every_length_stands_the_longest_run_that_is_held(self) -> None:
        for length in range(1, MAX_POSITION + 8):
            count = 0
            while length - 2 - count in self.held:
                count += 1
            assert self.features.before(length) == rows(length - 1 - count, count)

    def _take(self, positions: range) -> None:
        fresh = {position for position in positions if position >= self.given}
        self.held = sorted(fresh | set(self.held))[-MAX_ROWS:]


TestAgainstAPlainRecord = AgainstAPlainRecord.TestCase


@given(st.integers(1, 40), st.integers(1, 8), st.integers(1, 60))
def test_of_a_prompt_in_chunks_the_newest_rows_stay(length: int, chunk: int, max_rows: int) -> None:
    features = Features(4 * WIDTH, max_rows)
    for first in range(0, length, chunk):
        features.add(first, rows(first, min(chunk, length - first)))
    kept = min(length, max_rows)
    assert features.before(length + 1) == rows(length - kept, kept)


@pytest.mark.parametrize(("hidden_size", "kept"), [(576, 2048), (2048, 2048), (4096, 1024), (8192, 512)])
def test_what_is_kept_of_wide_rows_fits_into_a_quarter_of_a_message(hidden_size: int, kept: int) -> None:
    features = Features(4 * hidden_size)
    zeros = bytes(4 * hidden_size)
    for first in range(0, 2304, 256):
        features.add(first, zeros * 256)
    assert len(features.before(2305)) == kept * len(zeros)
