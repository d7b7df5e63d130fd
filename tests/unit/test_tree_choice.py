"""The size of a tree against brute force over all trees, and its growth against growth to the end."""

from __future__ import annotations

from itertools import combinations
from math import isclose

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetspec.decoding.tree import ROOT
from hetspec.drafting.calibration import CalibrationMap
from hetspec.drafting.costs import CostCurve, DraftCosts
from hetspec.drafting.growth import Growth
from hetspec.drafting.nodes import Proposal
from hetspec.drafting.tree_choice import TreeChoice
from hetspec.rpc.messages import DraftPolicy

MODEL = 2
MAX_NODES, WIDTH = 8, 3
chances = st.floats(0.01, 1)


@st.composite
def curves(draw: st.DrawFn, max_rows: int) -> CostCurve:
    """Any that never falls: flat, straight, and with the steps of buckets."""
    rows = sorted({1, max_rows, *draw(st.lists(st.integers(1, max_rows), max_size=4))})
    rises = draw(st.lists(st.integers(0, 300), min_size=len(rows), max_size=len(rows)))
    points = [(at, 10 + sum(rises[: i + 1])) for i, at in enumerate(rows)]
    return CostCurve.padded(points) if draw(st.booleans()) else CostCurve(tuple(points))


all_costs = st.builds(DraftCosts, st.integers(0, 200), curves(1 + MAX_NODES), curves(8))


@st.composite
def trees(draw: st.DrawFn) -> tuple[list[int], list[float]]:
    """Parents, and the gain of each node."""
    size = draw(st.integers(0, 7))
    parents = [draw(st.integers(ROOT, node - 1)) for node in range(size)]
    gains: list[float] = []
    for parent in parents:
        gains.append(draw(chances) * (1.0 if parent == ROOT else gains[parent]))
    return parents, gains


def best_of_all(parents: list[int], gains: list[float], costs: DraftCosts, spent: float, walk_row: float) -> float:
    """Over every set of nodes that holds its nodes' parents, the sampler's rows paid for too."""
    rates = []
    for size in range(len(parents) + 1):
        for nodes in combinations(range(len(parents)), size):
            if all(parents[node] == ROOT or parents[node] in nodes for node in nodes):
                tokens = 1 + sum(gains[node] for node in nodes)
                cost = costs.round + spent + costs.verify(1 + size) + walk_row * tokens
                rates.append(tokens / cost)
    return max(rates)


@given(trees(), all_costs, st.integers(0, 200), st.integers(0, 100))
def test_the_chosen_tree_is_the_best_of_all_trees(
    tree: tuple[list[int], list[float]], costs: DraftCosts, spent: int, walk_row: int
) -> None:
    parents, gains = tree
    choice = TreeChoice(costs, MAX_NODES)
    choice.spent = spent
    ordered = sorted(gains, reverse=True)
    size = choice.nodes(ordered)
    tokens = 1 + sum(ordered[:size])
    rate = tokens / (costs.round + spent + costs.verify(1 + size) + walk_row * tokens)
    assert isclose(rate, best_of_all(parents, gains, costs, spent, walk_row))


def children(draw: st.DrawFn) -> list[tuple[int, float]]:
    """Siblings, together no likelier than certain."""
    shares = draw(st.lists(chances, min_size=1, max_size=WIDTH))
    scale = draw(st.floats(0.3, 1)) / max(1.0, sum(shares))
    return [(token, share * scale) for token, share in enumerate(shares)]


@st.composite
def growths(draw: st.DrawFn) -> tuple[TreeChoice, list[tuple[float, bool]], list[float]]:
    """A tree grown to some point, then on to the end by steps that feed what they like: the choice and the nodes (gain,
    still unfed) at that point, and the rate after each further step. All bounds are told of that point."""
    costs, depth = draw(all_costs), draw(st.integers(1, 4))
    choice = TreeChoice(costs, MAX_NODES)
    nodes = [(chance, 1, False) for _, chance in children(draw)]  # gain, depth, fed
    pause = draw(st.integers(0, depth - 1))
    told: list[tuple[float, bool]] = []
    rates: list[float] = []
    before = 0.0
    for step in range(depth):
        if step == pause:
            told, before = [(gain, not fed and at < depth) for gain, at, fed in nodes], choice.spent
        ready = [i for i, (_, at, fed) in enumerate(nodes) if not fed and at < depth]
        if not ready or step == depth - 1:
            break
        fed_now = draw(st.lists(st.sampled_from(ready), unique=True, min_size=1, max_size=WIDTH))
        choice.spend(len(fed_now))
        for i in fed_now:
            gain, at, _ = nodes[i]
            nodes[i] = (gain, at, True)
            nodes += [(gain * chance, at + 1, False) for _, chance in children(draw)]
        if step >= pause:
            rates.append(choice.rate(sorted((gain for gain, _, _ in nodes), reverse=True)))
    choice.spent = before
    return choice, told, rates


@given(growths())
def test_no_growth_is_better_than_its_bound(grown: tuple[TreeChoice, list[tuple[float, bool]], list[float]]) -> None:
    choice, nodes, rates = grown
    gains = sorted((gain for gain, _ in nodes), reverse=True)
    unfed = sorted((gain for gain, is_unfed in nodes if is_unfed), reverse=True)[:WIDTH]
    for rate, bound in zip(rates, choice.bounds(gains, unfed, len(rates)), strict=True):
        assert rate <= bound * (1 + 1e-12)


def grow(growth: Growth, answers: dict[tuple[int, ...], list[tuple[int, float]]]) -> None:
    growth.read(1)
    nodes = [ROOT]
    while nodes:
        for node in nodes:
            growth.branch(node, Proposal(answers[tuple(growth.nodes.path(node))], 0.0))
        if nodes := growth.select():
            growth.feed(nodes)


class _ToTheEnd(TreeChoice):
    """Feeds whatever may be fed."""

    def to_feed(self, *args: object) -> int:
        return WIDTH


@st.composite
def answers_of_a_model(draw: st.DrawFn, depth: int) -> dict[tuple[int, ...], list[tuple[int, float]]]:
    """What it proposes below every path."""
    answers, paths = {}, [()]
    for _ in range(depth):
        answers |= {path: children(draw) for path in paths}
        paths = [(*path, token) for path in paths for token, _ in answers[path]]
    return answers


@given(st.data(), all_costs, st.integers(1, 3))
def test_growth_that_stops_loses_nothing_against_growth_to_the_end(
    data: st.DataObject, costs: DraftCosts, depth: int
) -> None:
    """Where steps cost the same whatever they feed, so that both feed alike."""
    flat = DraftCosts(costs.round, costs.verify, CostCurve.padded([(8, costs.draft_step.points[0][1])]))
    answers = data.draw(answers_of_a_model(depth))
    policy = DraftPolicy(MAX_NODES, depth, WIDTH, (MODEL,), costs=flat)
    stopping, whole = Growth(policy), Growth(policy)
    whole._choice = _ToTheEnd(flat, MAX_NODES)
    rates = []
    for growth in (stopping, whole):
        grow(growth, answers)
        draft = growth.finish().draft
        tokens = 1 + sum(growth._best.gains[: len(draft.tree)])
        rates.append(tokens / (flat.round + draft.spent + flat.verify(1 + len(draft.tree))))
    assert rates[0] >= rates[1] * (1 - 1e-12)


def test_inside_a_bucket_nodes_cost_nothing_and_beyond_its_edge_they_must_pay_for_the_next() -> None:
    costs = DraftCosts(0, CostCurve.padded([(4, 100), (16, 180)]), CostCurve(((1, 1),)))
    choice = TreeChoice(costs, 15)
    assert choice.nodes([0.9, 0.1, 0.01]) == 3  # the bucket's rest is free
    assert choice.nodes([0.9, 0.1, 0.01, 0.01, 0.01]) == 3
    assert choice.nodes([0.5] * 15) == 15  # a local test of gain against cost would stop at the edge
    assert choice.nodes([]) == 0


def test_a_pass_that_costs_more_for_a_node_than_it_can_give_is_made_without_one() -> None:
    costs = DraftCosts(0, CostCurve(((1, 100), (9, 900))), CostCurve(((1, 1),)))
    assert TreeChoice(costs, 8).nodes([0.99, 0.9]) == 0


def test_a_growth_without_worth_asks_the_model_for_nothing_more() -> None:
    costs = DraftCosts(0, CostCurve(((1, 100), (9, 108))), CostCurve(((1, 90), (8, 90))))
    growth = Growth(DraftPolicy(8, 4, 2, (MODEL,), costs=costs))
    growth.read(1)
    growth.branch(ROOT, Proposal([(7, 0.3), (8, 0.1)], 0.0))
    assert growth.select() == []
    draft = growth.finish().draft
    assert (draft.tree.tokens, draft.spent) == ((7, 8), 90)


def test_draft_probabilities_count_as_the_calibration_map_has_them_and_are_told_as_they_were() -> None:
    halved = CalibrationMap((0.5,), ((MODEL, ((1.0, 0.5),)),))
    for calibration, drafted in ((None, (7, 0.6)), (halved, (8, 0.4))):  # where 0.6 counts as 0.3
        costs = DraftCosts(0, CostCurve(((1, 100), (9, 380))), CostCurve(((1, 1), (8, 1))), calibration)
        growth = Growth(DraftPolicy(8, 1, 2, (MODEL,), costs=costs))
        growth.branch(ROOT, Proposal([(7, 0.6), (8, 0.4)], 0.0))
        draft = growth.finish().draft
        assert (*draft.tree.tokens, *draft.probabilities) == drafted


@pytest.mark.parametrize("points", [(), ((2, 5),), ((1, 5), (1, 6)), ((1, 5), (3, -1))])
def test_a_curve_that_says_nothing_sensible_is_refused(points: tuple[tuple[int, int], ...]) -> None:
    with pytest.raises(ValueError, match=r"^cost curve: "):
        CostCurve(points)


def test_a_curve_is_straight_between_points_and_a_step_where_rows_are_padded() -> None:
    assert [CostCurve(((1, 10), (3, 30), (4, 30)))(rows) for rows in (1, 2, 3, 4)] == [10, 20, 30, 30]
    assert [CostCurve.padded([(2, 10), (3, 20), (5, 40)])(rows) for rows in range(1, 6)] == [10, 10, 20, 40, 40]
    for rows in (0, 5):
        with pytest.raises(ValueError, match=f"rows = {rows}, the curve tells 1 to 4"):
            CostCurve(((1, 10), (4, 30)))(rows)
