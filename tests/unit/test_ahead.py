"""The tree of what is drafted ahead, against a re-statement of the rules on paths of tokens."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from hetspec.decoding.tree import ROOT, TokenTree
from hetspec.rpc.messages import Draft, Walk
from orchestrator.engine.ahead import Ahead, Batch, is_in_full, likeliest_path
from orchestrator.engine.seat import Mark
from orchestrator.policies.control import AheadReport

Path = tuple[int, ...]


def draft_of(tree: TokenTree) -> Draft:
    nodes = len(tree)
    return Draft(tree, (0.5,) * nodes, (2,) * nodes, 0, (1.0,) * nodes)


def grown(tree: TokenTree, parents: list[int], count: int, chance: random.Random) -> TokenTree:
    for _ in range(count):
        parent, token = chance.choice([*parents, *range(len(tree), len(tree))]), chance.randrange(4)
        if tree.child(parent, token) is None:
            tree = TokenTree((*tree.tokens, token), (*tree.parents, parent))
    return tree


def paths(tree: TokenTree) -> dict[Path, int]:
    """Every node by the tokens that lead to it."""
    return {tuple(tree.tokens[at] for at in tree.path(node)): node for node in range(len(tree))}


def walk_down(tree: TokenTree, text: Path) -> Walk:
    """Over a text that never ends."""
    tokens, accepted, node = [], [], ROOT
    for token in text:
        tokens.append(token)
        if (child := tree.child(node, token)) is None:
            break
        accepted.append(child)
        node = child
    return Walk(tuple(tokens), tuple(accepted))


@given(st.integers(0, 10_000))
def test_what_is_verified_next_hangs_below_all_that_is_decided_and_every_node_ends_once(seed: int) -> None:
    chance = random.Random(seed)
    text: Path = tuple(chance.randrange(4) for _ in range(200))
    tree = grown(TokenTree(), [ROOT], 3, chance)
    tree = grown(tree, list(range(len(tree))) or [ROOT], 4, chance)
    ahead, decided, report = Ahead(Mark(0, 0)), 0, AheadReport()
    ahead.add(draft_of(tree), Batch(0, len(tree), 0.0))
    for _ in range(3):
        first = len(tree)
        tree = grown(tree, list(range(first)) or [ROOT], 4, chance)
        outcomes = list(range(first, len(tree)))
        tree = grown(tree, outcomes, 6, chance) if outcomes else tree
        ahead.add(draft_of(tree), Batch(first, len(tree), 0.0))
    is_alive = True
    while is_alive and (part := ahead.next()) is not None:
        whole = paths(ahead.draft.tree)
        below = {path: node for path, node in whole.items() if path[:decided] == text[:decided] and len(path) > decided}
        expected = {path: node for path, node in below.items() if node < part.batch.stop}
        assert {text[:decided] + path: part.nodes[node] for path, node in paths(part.draft.tree).items()} == expected
        walk = walk_down(part.draft.tree, text[decided : decided + 40])
        decided += len(walk.tokens)
        is_alive = ahead.judge(part, walk)
        assert is_alive == (text[:decided] in whole)
        assert (
            ahead.follow(text[decided : decided + 3])
            == [whole[text[:end]] for end in range(decided + 1, decided + 4) if is_alive and text[:end] in whole]
            or not is_alive
        )
    ahead.settle(report)
    assert report.drafted == len(tree) == report.accepted + report.rejected + report.confirmed + report.dropped
    assert min(report.accepted, report.rejected, report.confirmed, report.dropped) >= 0


def test_a_walk_is_in_full_where_it_ends_at_a_leaf() -> None:
    tree = TokenTree((5, 6, 7), (ROOT, 0, 0))
    assert [is_in_full(tree, Walk((5, 6, 1), accepted)) for accepted in ((0, 1), (0, 2), (0,), ())] == [
        True,
        True,
        False,
        False,
    ]
    assert not is_in_full(TokenTree(), Walk((5,), ()))


def test_the_likeliest_path_takes_the_likeliest_child_everywhere() -> None:
    tree = TokenTree((5, 6, 7, 8), (ROOT, ROOT, 1, 1))
    assert likeliest_path(Draft(tree, (0.3, 0.4, 0.1, 0.2), (2,) * 4, 0, (0.0,) * 4)) == [6, 8]
