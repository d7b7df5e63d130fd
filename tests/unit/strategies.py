"""Inputs that several tests draw."""

from hypothesis import strategies as st

from hetspec.decoding.tree import TokenTree


@st.composite
def trees(draw: st.DrawFn, tokens: int = 6, max_nodes: int = 14) -> TokenTree:
    """Any tree over a small vocabulary: bushy, deep, empty."""
    nodes: list[tuple[int, int]] = []
    for place, token in draw(st.lists(st.tuples(st.integers(0, 99), st.integers(0, tokens - 1)), max_size=max_nodes)):
        node = (place % (len(nodes) + 1) - 1, token)
        if node not in nodes:
            nodes.append(node)
    return TokenTree(tuple(token for _, token in nodes), tuple(parent for parent, _ in nodes))
