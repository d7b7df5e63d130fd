"""When nodes are let leave half way: the rule, restated by enumerating where walks may end."""

from __future__ import annotations

import random
from dataclasses import replace
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetspec.decoding.tree import ROOT, TokenTree
from hetspec.drafting.costs import CostCurve, DraftCosts
from hetspec.rpc.messages import Draft, DraftPolicy, Walk
from hetspec.v1.drafter_pb2 import DRAFT_SOURCE_MODEL
from orchestrator.policies.early_exit import EarlyExits, Exit
from orchestrator.policies.lever import Lever
from orchestrator.policies.mode import Part

MODEL = int(DRAFT_SOURCE_MODEL)
STEP = CostCurve(((1, 5), (8, 5)))
FLAT = DraftCosts(10, CostCurve(((1, 1000), (256, 1000))), STEP)
STEEP = DraftCosts(10, CostCurve(((1, 1000), (256, 1000 + 255 * 100))), STEP)
AT = Exit(0.5, 0.995)


def policy(costs: DraftCosts | None) -> DraftPolicy:
    return DraftPolicy(64, 8, 8, (MODEL,), costs=costs)


@st.composite
def drafts(draw: st.DrawFn) -> Draft:
    """Siblings have less than certainty together."""
    nodes = draw(st.integers(1, 24))
    parents = tuple(draw(st.integers(ROOT, node - 1)) for node in range(nodes))
    shares = [draw(st.floats(0.01, 1)) for _ in range(nodes)]
    together = {above: sum(shares[node] for node in range(nodes) if parents[node] == above) for above in parents}
    chances = tuple(share / max(1.0, together[above]) for share, above in zip(shares, parents, strict=True))
    spent = draw(st.integers(0, 500))
    return Draft(TokenTree(tuple(range(nodes)), parents), chances, (MODEL,) * nodes, spent)


def expected_accepted(draft: Draft) -> float:
    """Over all nodes that a walk may end at."""
    tree, total = draft.tree, 0.0
    for end in range(len(tree)):
        path = tree.path(end)
        reached = 1.0
        for node in path:
            reached *= draft.probabilities[node]
        goes_on = sum(draft.probabilities[node] for node, above in enumerate(tree.parents) if above == end)
        total += reached * (1 - goes_on) * len(path)
    return total


@given(
    drafts(),
    st.floats(0, 1),
    st.floats(0.5, 1),
    st.integers(0, 200),
    st.lists(st.tuples(st.integers(0, 20), st.integers(0, 3)), max_size=6),
)
def test_they_are_where_that_saves_more_than_it_loses(
    draft: Draft, left: float, recall: float, row: int, seen: list[tuple[int, int]]
) -> None:
    """seen: of passes of 24 nodes, how many left, and how many were accepted before the last of these was wrong."""
    costs = DraftCosts(7, CostCurve(((1, 1000), (65, 1000 + 64 * row))), STEP)
    lever, at = Lever(frozenset(Part)), Exit(left, recall)
    for dropped, accepted in seen:
        lever._exits.passed(24, dropped)
        lever._exits.judged(accepted, is_wrong=True)
    lever.begin_round(draft, policy(costs))
    share = fmean([0.2] * 64 + [dropped / 24 for dropped, _ in seen for _ in range(24)])
    misses = fmean([1 - recall] * 460 + [one for _, accepted in seen for one in (1.0, *[0.0] * accepted)])
    accepted = expected_accepted(draft)
    round_cost = 7 + draft.spent + 1000 + row * len(draft.tree)
    saved, lost = left * row * round(share * len(draft.tree)), misses * accepted * round_cost / (1 + accepted)
    if saved != pytest.approx(lost):
        assert lever.may_leave(at) is (saved > lost)


def chain(nodes: int) -> Draft:
    return Draft(TokenTree.chain(list(range(nodes))), (0.8,) * nodes, (MODEL,) * nodes)


@pytest.mark.parametrize(("costs", "leave"), [(FLAT, False), (STEEP, True), (None, True)])
def test_none_leave_where_rows_cost_nothing_and_some_where_they_do_or_nobody_knows(
    costs: DraftCosts | None, leave: bool
) -> None:
    lever = Lever(frozenset(Part))
    lever.begin_round(chain(20), policy(costs))
    assert lever.may_leave(AT) is leave


def test_a_draft_that_no_costs_sized_goes_by_the_last_that_were_told() -> None:
    lever = Lever(frozenset(Part))
    for told, leave in ((None, True), (policy(FLAT), False), (None, False), (policy(STEEP), True), (None, True)):
        lever.begin_round(chain(20), told)
        assert lever.may_leave(AT) is leave


def test_wrong_drops_end_it() -> None:
    """Half of what is accepted leaves: after as many rounds as it takes to know, it stays."""
    lever, chance, asked = Lever(frozenset(Part)), random.Random(3), 0
    costs = replace(STEEP, verify=CostCurve(((1, 1000), (256, 1000 + 255 * 40))))
    for _ in range(400):
        lever.begin_round(chain(20), policy(costs))
        if not lever.may_leave(AT):
            break
        asked += 1
        lever.verified(4)
        is_wrong = chance.random() < 0.5
        lever.learn(Walk((0, 1), (0,)) if is_wrong else Walk((0, 1, 99), (0, 1)))
    assert 10 < asked < 400


def test_where_nothing_ever_leaves_nothing_is_asked() -> None:
    exits, asked = EarlyExits(), 0
    lever = Lever(frozenset(Part))
    lever._exits = exits
    for _ in range(50):
        lever.begin_round(chain(20), policy(STEEP))
        if not lever.may_leave(AT):
            break
        asked += 1
        lever.verified(0)
        lever.learn(Walk((99,), ()))
    assert 2 < asked < 50
