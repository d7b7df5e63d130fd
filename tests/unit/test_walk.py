from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from hetspec.decoding.choose import choose, logprobs_of
from hetspec.decoding.sampling import NoiseKey, Sampling
from hetspec.decoding.tree import ROOT, TokenTree
from hetspec.decoding.walk import Row, Steps, WalkSpec, walk
from tests.unit.strategies import trees

VOCAB = 6
MODEL = np.random.default_rng(0).normal(0, 1.5, (5, 16, VOCAB)).astype(np.float32)


def logits_of(walk_index: int, row: int) -> NDArray[np.float32]:
    """A fixed random model: logits of any row of any walk."""
    logits: NDArray[np.float32] = MODEL[walk_index, row]
    return logits


class Projector:
    """Answers projections and notes what was asked."""

    def __init__(self) -> None:
        self.calls: list[list[Row]] = []

    def __call__(self, rows: Sequence[Row]) -> NDArray[np.float32]:
        self.calls.append(list(rows))
        return np.stack([logits_of(*row) for row in rows])


def naive_walk(index: int, spec: WalkSpec) -> Steps:
    """One walk alone, as the rule reads."""
    steps, node = Steps(), ROOT
    while True:
        logits = logits_of(index, 1 + node)
        token = choose(logits, spec.sampling, spec.noise, spec.position + len(steps.tokens))
        steps.tokens.append(token)
        if spec.top_logprobs is not None:
            steps.logprobs.append(logprobs_of(logits, token, spec.top_logprobs))
        children = [n for n, p in enumerate(spec.tree.parents) if p == node and spec.tree.tokens[n] == token]
        steps.accepted += children
        if not children or token in spec.end_ids or len(steps.tokens) == spec.max_tokens:
            return steps
        node = children[0]


specs = st.builds(
    WalkSpec,
    trees(VOCAB),
    st.sampled_from([Sampling(0), Sampling(0.8), Sampling(2.0, 3)]),
    st.builds(NoiseKey, st.integers(0, 99)),
    st.integers(0, 1000),
    st.integers(1, 5),
    st.frozensets(st.integers(0, VOCAB - 1), max_size=2),
    st.sampled_from([None, 0, 3]),
)


@given(st.lists(specs, max_size=5))
def test_walks_in_lockstep_equal_each_walk_alone(items: list[WalkSpec]) -> None:
    assert walk(items, Projector()) == [naive_walk(i, spec) for i, spec in enumerate(items)]


@given(st.lists(specs, min_size=1, max_size=5))
def test_only_rows_on_accepted_paths_are_projected_and_once_each(items: list[WalkSpec]) -> None:
    projector = Projector()
    results = walk(items, projector)
    for i, steps in enumerate(results):
        rows = [row for call in projector.calls for index, row in call if index == i]
        assert rows == [0, *(1 + node for node in steps.accepted)][: len(steps.tokens)]
    assert all(len({index for index, _ in call}) == len(call) for call in projector.calls)
    assert len(projector.calls) == max(len(steps.tokens) for steps in results)


def greedy_chain(index: int, length: int) -> TokenTree:
    """The chain that greedy decoding of the fixed model accepts to its end."""
    return TokenTree.chain([int(np.argmax(logits_of(index, row))) for row in range(length)])


CHAIN = WalkSpec(greedy_chain(0, 4), Sampling(0), NoiseKey(0), position=10, max_tokens=100)


def test_a_chain_that_is_all_right_gives_a_bonus() -> None:
    (steps,) = walk([CHAIN], Projector())
    assert steps.accepted == [0, 1, 2, 3]
    assert steps.tokens == [*CHAIN.tree.tokens, int(np.argmax(logits_of(0, 4)))]


def test_max_tokens_on_an_accepted_node_leaves_no_bonus() -> None:
    (steps,) = walk([replace(CHAIN, max_tokens=4)], Projector())
    assert steps.tokens == list(CHAIN.tree.tokens)
    assert steps.accepted == [0, 1, 2, 3]


def test_an_end_id_that_was_drafted_is_accepted_and_ends_the_walk() -> None:
    end = CHAIN.tree.tokens[0]
    (steps,) = walk([replace(CHAIN, end_ids=frozenset({end}))], Projector())
    assert steps.tokens == [end]
    assert steps.accepted == [0]


def test_a_forbidden_id_is_not_chosen_and_has_no_logprob() -> None:
    best = int(np.argmax(logits_of(0, 0)))
    spec = replace(CHAIN, top_logprobs=VOCAB)
    (steps,) = walk([spec], Projector(), forbidden=np.array([best]))
    assert best not in steps.tokens
    assert all(best not in entry.top_ids for entry in steps.logprobs)
    assert steps.tokens[0] == int(np.argsort(-logits_of(0, 0))[1])


@pytest.mark.parametrize("field", [{"max_tokens": 0}, {"position": -1}, {"position": 2**32}])
def test_a_walk_that_cannot_be_is_refused_by_name(field: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(field))):
        replace(CHAIN, **field)
