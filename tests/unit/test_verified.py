"""What is left of a tree behind early exit, and what of a verifier's word about it is believed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetspec.decoding.tree import ROOT, TokenTree
from hetspec.rpc.messages import EarlyExit, HiddenRows, HiddenStates, SessionUpdate, VerifyItem, Walk
from orchestrator.engine.checks import check_hidden
from orchestrator.engine.verified import Verified
from orchestrator.units.errors import Nonsense
from tests.unit.strategies import trees

ROW_BYTES = 4
TREE = TokenTree((7, 8, 9, 5), (ROOT, ROOT, 0, 2))
UPDATE = SessionUpdate("s", 1, 0, 0, append=(1, 2, 3))
TOLD = EarlyExit((0.5,) * 4, (2,) * 4)


@given(trees(30), st.sets(st.integers(0, 40)))
def test_what_is_left_has_the_same_paths_of_tokens_and_knows_where_they_were(tree: TokenTree, some: set[int]) -> None:
    pruned = tuple(n for n in range(len(tree)) if some & set(tree.path(n)))
    verified = Verified.of(tree, b"", pruned)
    assert verified.nodes == tuple(n for n in range(len(tree)) if n not in pruned)
    for place, node in enumerate(verified.nodes):
        path = verified.tree.path(place)
        assert [verified.tree.tokens[p] for p in path] == [tree.tokens[n] for n in tree.path(node)]
        tokens = tuple(verified.tree.tokens[p] for p in path)
        assert verified.in_draft(Walk(tokens, tuple(path))) == Walk(tokens, tuple(tree.path(node)))


def states(rows: int, pruned: tuple[int, ...]) -> HiddenStates:
    return HiddenStates(bytes(rows * ROW_BYTES), rows, pruned)


@pytest.mark.parametrize("pruned", [(), (1,), (3,), (2, 3), (0, 2, 3), (0, 1, 2, 3)])
@pytest.mark.parametrize(("hidden", "others"), [(HiddenRows.LAST, 1), (HiddenRows.ALL, 3)])
def test_rows_of_what_stayed_are_believed(hidden: HiddenRows, others: int, pruned: tuple[int, ...]) -> None:
    item = VerifyItem(UPDATE, TREE, hidden, TOLD)
    check_hidden(states(others + 4 - len(pruned), pruned), item, ROW_BYTES)


@pytest.mark.parametrize(
    ("pruned", "problem"),
    [((0,), "but not node 2"), ((2,), "but not node 3"), ((4,), "ascending nodes"), ((3, 2), "ascending nodes"),
     ((1, 1), "ascending nodes")],
)  # fmt: skip
def test_nodes_that_cannot_have_left_alone_or_at_all_are_nonsense(pruned: tuple[int, ...], problem: str) -> None:
    item = VerifyItem(UPDATE, TREE, HiddenRows.LAST, TOLD)
    with pytest.raises(Nonsense, match=problem):
        check_hidden(states(5 - len(pruned), pruned), item, ROW_BYTES)


def test_nothing_leaves_unasked_and_what_left_has_no_row() -> None:
    with pytest.raises(Nonsense, match="all layers"):
        check_hidden(states(4, (1,)), VerifyItem(UPDATE, TREE), ROW_BYTES)
    with pytest.raises(Nonsense, match="rows = 5, asked for 4"):
        check_hidden(states(5, (1,)), VerifyItem(UPDATE, TREE, HiddenRows.LAST, TOLD), ROW_BYTES)


def test_items_and_results_come_back_from_the_wire_as_they_were_sent() -> None:
    item = VerifyItem(UPDATE, TREE, HiddenRows.ALL, TOLD)
    assert VerifyItem.from_pb(item.to_pb()) == item
    assert VerifyItem.from_pb(VerifyItem(UPDATE, TREE).to_pb()) == VerifyItem(UPDATE, TREE)
    assert HiddenStates.from_pb(states(2, (1, 3)).to_pb()) == states(2, (1, 3))
