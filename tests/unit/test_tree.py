import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetspec.decoding.tree import ROOT, TokenTree
from tests.unit.strategies import trees


def climb(tree: TokenTree, node: int) -> list[int]:
    """The nodes from `node` up, by following parents."""
    return [] if node == ROOT else [node, *climb(tree, tree.parents[node])]


@given(trees())
def test_paths_and_depths_follow_the_parents(tree: TokenTree) -> None:
    for node in range(len(tree)):
        assert tree.path(node) == climb(tree, node)[::-1]
        assert tree.depths()[node] == len(climb(tree, node))
        assert tree.is_path(tree.path(node))


@given(trees(), st.integers(ROOT, 13), st.integers(0, 6))
def test_child_finds_the_node_that_holds_the_token(tree: TokenTree, parent: int, token: int) -> None:
    held = [n for n in range(len(tree)) if tree.parents[n] == parent and tree.tokens[n] == token]
    assert tree.child(parent, token) == (held[0] if held else None)


@given(trees(), st.lists(st.integers(-2, 13), max_size=4))
def test_is_path_holds_for_the_beginnings_of_paths_only(tree: TokenTree, nodes: list[int]) -> None:
    beginnings = [tree.path(node) for node in range(len(tree))] + [[]]
    assert tree.is_path(nodes) == (nodes in beginnings)


def test_a_chain_is_one_path() -> None:
    assert TokenTree.chain([5, 6, 7]) == TokenTree((5, 6, 7), (ROOT, 0, 1))


@pytest.mark.parametrize(
    ("tokens", "parents", "message"),
    [
        ((1,), (), "1 tokens but 0 parents"),
        ((1,), (0,), r"parents\[0\] = 0"),
        ((1, 2), (ROOT, -2), r"parents\[1\] = -2"),
        ((1, 1), (ROOT, ROOT), "node 1 repeats token 1"),
    ],
)
def test_a_malformed_tree_is_refused_by_name(tokens: tuple[int, ...], parents: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TokenTree(tokens, parents)
