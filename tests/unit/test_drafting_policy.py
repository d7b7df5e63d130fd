"""draft_policy: never more than the request wants and everything leaves room for."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from hetspec.drafting.costs import CostCurve, DraftCosts
from hetspec.v1 import drafter_pb2
from orchestrator.policies.drafting import MAX_WIDTH, STATIC_DEPTH, STATIC_NODES, DraftRoom, draft_policy
from orchestrator.policies.mode import Mode

rooms = st.builds(
    DraftRoom,
    max_nodes=st.integers(1, 64),
    max_depth=st.integers(1, 16),
    min_gain=st.floats(0, 1),
    left=st.integers(1, 20),
    context=st.integers(-2, 40),
    rows=st.integers(0, 40),
    drafter=st.builds(
        drafter_pb2.DrafterDescription,
        max_nodes=st.integers(0, 64),
        max_depth=st.integers(0, 16),
        sources=st.just([drafter_pb2.DRAFT_SOURCE_LOOKUP]),
    ),
    drafter_context=st.integers(-2, 40),
)


@given(st.sampled_from([mode for mode in Mode if mode not in (Mode.LEVER, Mode.FULL)]), rooms)
def test_draft_keeps_within_every_bound_and_reaches_one_of_them(mode: Mode, room: DraftRoom) -> None:
    policy = draft_policy(mode, room)
    depths = (room.max_depth, room.left - 1, room.context, room.drafter_context, room.drafter.max_depth)
    nodes = (room.max_nodes, room.context, room.drafter_context, room.rows, room.drafter.max_nodes)
    if mode is Mode.PLAIN or min(depths) < 1 or min(nodes) < 1:
        assert policy is None
        return
    assert policy is not None
    assert policy.min_gain == room.min_gain
    if mode in (Mode.CHAIN, Mode.AHASD):
        assert policy.max_depth == policy.max_nodes == min(*depths, *nodes)
        assert policy.width == 1
    else:
        assert (policy.max_depth, policy.max_nodes) == (min(depths), min(nodes))
        assert 1 <= policy.width <= MAX_WIDTH


@given(rooms, st.integers(2, 80))
def test_levers_draft_keeps_within_every_bound_and_within_what_its_costs_tell(room: DraftRoom, rows: int) -> None:
    costs = DraftCosts(0, CostCurve(((1, 9), (rows, 9))), CostCurve(((1, 1), (8, 1))))
    policy, tree = draft_policy(Mode.LEVER, room, costs), draft_policy(Mode.TREE, room)
    if tree is None or policy is None:
        assert policy is tree
        return
    assert policy.costs is costs
    assert (policy.max_depth, policy.max_nodes) == (tree.max_depth, min(tree.max_nodes, rows - 1))
    assert 1 <= policy.width <= MAX_WIDTH


@given(rooms)
def test_without_costs_levers_tree_is_no_larger_than_a_static_one(room: DraftRoom) -> None:
    small = replace(room, max_nodes=min(room.max_nodes, STATIC_NODES), max_depth=min(room.max_depth, STATIC_DEPTH))
    assert draft_policy(Mode.LEVER, room) == draft_policy(Mode.TREE, small)
