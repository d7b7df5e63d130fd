"""The growing tree against brute force: the best nodes kept, parents fed before children."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hetspec.decoding.tree import ROOT, TokenTree
from hetspec.drafting.growth import Growth
from hetspec.rpc.messages import DraftPolicy

LOOKUP, MODEL, GRAMMAR = 1, 2, 3
chances = st.floats(1e-6, 1, allow_nan=False)
policies = st.builds(
    DraftPolicy, max_nodes=st.integers(1, 12), max_depth=st.integers(1, 5), width=st.integers(1, 4),
    sources=st.just((LOOKUP, MODEL)), min_gain=st.sampled_from([0.0, 0.0, 0.05, 0.3, 1.0]),
)  # fmt: skip


@dataclass
class Record:
    """What was added, kept beside the growth: a path of tokens and its gain, first come first, however small."""

    depth: int
    gains: dict[tuple[int, ...], float] = field(default_factory=dict)
    fed: list[tuple[int, ...]] = field(default_factory=list)
    numbers: list[tuple[int, ...]] = field(default_factory=list)

    def add(self, parent: tuple[int, ...], candidates: list[tuple[int, float]]) -> None:
        for token, chance in candidates:
            path = (*parent, token)
            if len(path) <= self.depth and path not in self.gains:
                self.gains[path] = self.gains.get(parent, 1.0) * chance
                self.numbers.append(path)


def paths_of(tree: Any) -> list[tuple[int, ...]]:
    return [tuple(tree.tokens[n] for n in tree.path(node)) for node in range(len(tree))]


def grown(policy: DraftPolicy, data: st.DataObject) -> tuple[Growth, Record]:
    """Lookup runs first, then a model that answers at random; `select` is checked on the way."""
    growth, record = Growth(policy), Record(policy.max_depth)
    for run in data.draw(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=6), max_size=2)):
        chance = data.draw(chances)
        growth.add_run(run, chance, LOOKUP)
        for i, token in enumerate(run):
            record.add(tuple(run[:i]), [(token, chance)])
    frontier: list[tuple[int, tuple[int, ...]]] = [(ROOT, ())]
    steps = 0
    while frontier:
        for node, path in frontier:
            tokens = data.draw(st.lists(st.integers(0, 3), unique=True, min_size=1, max_size=policy.width))
            candidates = [(token, data.draw(chances)) for token in tokens]
            growth.add(node, candidates, MODEL)
            record.add(path, candidates)
        selected = growth.select()
        paths = [tuple(growth.path(node)) for node in selected]
        check_selected(paths, policy, record)
        assert paths_of(growth.fed_tree(selected)) == record.fed + paths
        growth.feed(selected)
        record.fed += paths
        frontier = list(zip(selected, paths, strict=True))
        steps += 1
    assert steps <= policy.max_depth
    return growth, record


def check_selected(paths: list[tuple[int, ...]], policy: DraftPolicy, record: Record) -> None:
    """No step is larger than the width, and none feeds what could have no child in the tree."""
    assert len(paths) <= policy.width
    ahead = sorted(record.gains.values(), reverse=True)[: policy.max_nodes]
    for path in paths:
        assert record.gains[path] >= policy.min_gain
        assert len(ahead) < policy.max_nodes or record.gains[path] > ahead[-1]
        assert path not in record.fed
        assert len(path) < policy.max_depth
        assert len(path) == 1 or path[:-1] in record.fed


@given(policies, st.data())
def test_the_draft_is_the_nodes_of_the_highest_gain_and_a_tree(policy: DraftPolicy, data: st.DataObject) -> None:
    growth, record = grown(policy, data)
    draft, fed = growth.draft()
    paths = paths_of(draft.tree)
    likely = [path for path in record.numbers if record.gains[path] >= policy.min_gain]
    order = sorted(likely, key=lambda path: (-record.gains[path], record.numbers.index(path)))
    assert set(paths) == set(order[: policy.max_nodes])
    assert len(paths) == min(policy.max_nodes, len(order)) == len(growth.draft()[0].sources)
    assert all(len(path) <= policy.max_depth for path in paths)
    assert [None if place is None else record.fed[place] for place in fed] == [
        path if path in record.fed else None for path in paths
    ]
    for node, path in enumerate(paths):
        gain = 1.0
        for ancestor in draft.tree.path(node):
            gain *= draft.probabilities[ancestor]
        assert gain == record.gains[path]


@given(st.integers(1, 6), st.integers(1, 6), st.data())
def test_width_1_grows_the_chain_of_the_best_candidates(nodes: int, depth: int, data: st.DataObject) -> None:
    growth = Growth(DraftPolicy(nodes, depth, 1, (MODEL,)))
    answers = data.draw(st.lists(st.integers(0, 9), min_size=depth, max_size=depth))
    growth.add(ROOT, [(answers[0], data.draw(chances))], MODEL)
    for token in answers[1:]:
        selected = growth.select()
        if len(growth) >= nodes:  # more would not be kept
            break
        assert len(selected) == 1
        growth.feed(selected)
        growth.add(selected[0], [(token, data.draw(chances))], MODEL)
    draft, _ = growth.draft()
    assert draft.tree.tokens == tuple(answers[: min(nodes, depth)])
    assert draft.tree.parents == tuple(range(-1, len(draft.tree) - 1))


def test_a_known_node_keeps_its_estimate_and_source_and_takes_the_models_children() -> None:
    growth = Growth(DraftPolicy(8, 3, 2, (LOOKUP, MODEL)))
    growth.add_run([7, 8], 0.5, LOOKUP)
    growth.add(ROOT, [(7, 0.9), (6, 0.2)], MODEL)
    assert growth.select() == [0, 2]
    growth.feed([0, 2])
    growth.add(0, [(8, 0.1), (5, 0.4)], MODEL)
    draft, fed = growth.draft()
    assert (draft.tree.tokens, draft.tree.parents) == ((7, 8, 6, 5), (-1, 0, -1, 0))
    assert draft.probabilities == (0.5, 0.5, 0.2, 0.4)
    assert draft.sources == (LOOKUP, LOOKUP, MODEL, MODEL)
    assert fed == [0, None, 1, None]


def test_what_is_certain_is_kept_whatever_the_least_gain() -> None:
    growth = Growth(DraftPolicy(8, 4, 2, (GRAMMAR, MODEL), min_gain=1.0))
    growth.add_run([7, 8], 1.0, GRAMMAR)
    growth.add(ROOT, [(6, 0.999)], MODEL)
    assert growth.select() == [0]
    draft, _ = growth.draft()
    assert draft.tree == TokenTree.chain([7, 8])


def test_nothing_to_draft_is_an_empty_tree() -> None:
    growth = Growth(DraftPolicy(4, 4, 2, ()))
    assert growth.select() == []
    draft, fed = growth.draft()
    assert (len(draft.tree), fed) == (0, [])
