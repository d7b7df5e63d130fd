"""hetspec.training.evaluation.passes, against rounds whose counts are plain to see."""

from __future__ import annotations

import pytest

from hetspec.decoding.tree import ROOT, TokenTree
from hetspec.rpc.messages import Draft
from hetspec.training.evaluation.passes import Count, Passes
from hetspec.training.speculation.replay import ReplayedRound
from hetspec.v1.drafter_pb2 import DRAFT_SOURCE_LOOKUP, DRAFT_SOURCE_MODEL

MODEL, LOOKUP = DRAFT_SOURCE_MODEL, DRAFT_SOURCE_LOOKUP
HEAD = frozenset(range(10))


def added(*rounds: ReplayedRound) -> Passes:
    passes = Passes()
    for one in rounds:
        passes.add(one, HEAD)
    return passes


def chain(tokens: tuple[int, ...], accepted: int, bonus: tuple[int, ...], source: int = MODEL) -> ReplayedRound:
    draft = Draft(TokenTree.chain(tokens), (0.5,) * len(tokens), (source,) * len(tokens))
    return ReplayedRound(draft, tuple(range(accepted)), (*tokens[:accepted], *bonus))


def test_accept_length_is_tokens_a_pass_with_the_bonus() -> None:
    passes = added(chain((1, 2, 3), 2, (9,)), chain((4, 5), 0, (6,)), chain((), 0, (7,)))
    assert (passes.passes, passes.tokens) == (3, 5)
    assert passes.accept_length == pytest.approx(5 / 3)


def test_a_level_counts_where_nodes_hung_below_an_accepted_path() -> None:
    passes = added(chain((1, 2, 3), 2, (9,)), chain((4,), 1, (6,)), chain((5,), 0, (6,)), chain((), 0, (7,)))
    assert passes.depths == [Count(3, 2), Count(1, 1), Count(1, 0)]


def test_a_bonus_below_the_last_level_is_no_miss() -> None:
    whole, nothing = chain((1, 2), 2, (30,)), chain((), 0, (30,))
    assert added(whole, nothing).missed == 0
    passes = added(whole, nothing, chain((1, 2), 1, (3,)), chain((1, 2), 0, (30,)))
    assert (passes.missed, passes.beyond_head) == (2, 1)


def test_an_answer_that_ends_on_a_node_misses_nothing() -> None:
    passes = added(chain((1, 2, 3), 2, ()))
    assert (passes.missed, passes.tokens) == (0, 2)
    assert passes.depths == [Count(1, 1), Count(1, 1)]


def test_nodes_count_for_the_source_that_proposed_them() -> None:
    tree = TokenTree((1, 2, 3, 4), (ROOT, ROOT, 1, 2))
    draft = Draft(tree, (0.5,) * 4, (MODEL, LOOKUP, LOOKUP, MODEL))
    passes = added(ReplayedRound(draft, (1, 2, 3), (2, 3, 4, 5)), chain((7,), 0, (8,), LOOKUP))
    assert passes.sources == {"model": Count(2, 1), "lookup": Count(3, 2)}
