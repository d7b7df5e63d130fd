"""The growing tree against brute force: the best nodes kept, parents fed before children."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hetspec.decoding.tree import ROOT, TokenTree
from hetspec.drafting.copies import COPIES, RIGHT, Copies
from hetspec.drafting.growth import Growth
from hetspec.drafting.lookup import NgramIndex
from hetspec.drafting.nodes import Proposal
from hetspec.rpc.messages import Draft, DraftPolicy

LOOKUP, MODEL, GRAMMAR = 1, 2, 3
chances = st.floats(1e-6, 1, allow_nan=False)
policies = st.builds(
    DraftPolicy, max_nodes=st.integers(1, 12), max_depth=st.integers(1, 5), width=st.integers(1, 4),
    sources=st.just((LOOKUP, MODEL)), min_gain=st.sampled_from([0.0, 0.0, 0.05, 0.3, 1.0]),
)  # fmt: skip


@dataclass
class Record:
    """What was added, kept beside the growth: of each path of tokens the last chance it was given, unless certain."""

    depth: int
    chances: dict[tuple[int, ...], float] = field(default_factory=dict)
    fed: list[tuple[int, ...]] = field(default_factory=list)

    def add(self, parent: tuple[int, ...], candidates: list[tuple[int, float]]) -> None:
        for token, chance in candidates:
            path = (*parent, token)
            if len(path) <= self.depth:
                known = self.chances.get(path)
                self.chances[path] = 1.0 if known == 1 else chance

    @property
    def gains(self) -> dict[tuple[int, ...], float]:
        """In the order in which the paths became known."""
        gains: dict[tuple[int, ...], float] = {}
        for path, chance in self.chances.items():
            gains[path] = chance * gains.get(path[:-1], 1.0)
        return gains


def paths_of(tree: Any) -> list[tuple[int, ...]]:
    return [tuple(tree.tokens[n] for n in tree.path(node)) for node in range(len(tree))]


def grown(policy: DraftPolicy, data: st.DataObject) -> tuple[Growth, Record]:
    """Lookup runs first, then a model that answers at random; `select` is checked on the way."""
    is_chain = policy.width == 1
    growth, record = Growth(policy), Record(min(policy.max_depth, policy.max_nodes) if is_chain else policy.max_depth)
    runs = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=6), max_size=1 if is_chain else 2)
    for run in data.draw(runs):
        chance = data.draw(chances)
        growth.add_run([(token, chance) for token in run], LOOKUP)
        for i, token in enumerate(run):
            if tuple(run[: i + 1]) not in record.chances:
                record.add(tuple(run[:i]), [(token, chance)])
    frontier: list[tuple[int, tuple[int, ...]]] = [(ROOT, ())]
    steps = 0
    while frontier:
        for node, path in frontier:
            tokens = data.draw(st.lists(st.integers(0, 3), unique=True, min_size=1, max_size=policy.width))
            candidates = [(token, data.draw(chances)) for token in tokens]
            growth.branch(node, Proposal(candidates, 0.0))
            record.add(path, candidates)
        selected = growth.select()
        paths = [tuple(growth.nodes.path(node)) for node in selected]
        check_selected(paths, policy, record)
        assert paths_of(growth.nodes.fed_tree(selected)) == record.fed + paths
        growth.feed(selected)
        record.fed += paths
        frontier = list(zip(selected, paths, strict=True))
        steps += 1
    assert steps <= policy.max_depth
    return growth, record


def finished(growth: Growth) -> tuple[Draft, list[int | None]]:
    """The draft, and the place of each of its nodes among the fed ones."""
    grown = growth.finish()
    return grown.draft, grown.places


def check_selected(paths: list[tuple[int, ...]], policy: DraftPolicy, record: Record) -> None:
    """No step is larger than the width, and none feeds what could have no child in the tree."""
    assert len(paths) <= policy.width
    gains = record.gains
    ahead = sorted(gains.values(), reverse=True)[: policy.max_nodes]
    for path in paths:
        assert gains[path] >= policy.min_gain
        assert policy.width == 1 or len(ahead) < policy.max_nodes or gains[path] > ahead[-1]
        assert path not in record.fed
        assert len(path) < record.depth
        assert len(path) == 1 or path[:-1] in record.fed


@given(policies.filter(lambda policy: policy.width > 1), st.data())
def test_the_draft_is_the_nodes_of_the_highest_gain_and_a_tree(policy: DraftPolicy, data: st.DataObject) -> None:
    growth, record = grown(policy, data)
    draft, fed = finished(growth)
    paths, gains = paths_of(draft.tree), record.gains
    likely = [path for path in gains if gains[path] >= policy.min_gain]
    kept = sorted(likely, key=lambda path: -gains[path])[: policy.max_nodes]
    assert set(paths) == set(kept)
    assert len(paths) == len(kept) == len(draft.sources)
    check_nodes(draft, fed, record)


@given(policies.map(lambda policy: replace(policy, width=1)), st.data())
def test_a_chain_is_the_path_of_the_largest_sum_of_gains(policy: DraftPolicy, data: st.DataObject) -> None:
    growth, record = grown(policy, data)
    draft, fed = finished(growth)
    gains = {path: gain for path, gain in record.gains.items() if gain >= policy.min_gain}
    sums = [sum(gains[path[:depth]] for depth in range(1, len(path) + 1)) for path in gains]
    paths = paths_of(draft.tree)
    assert draft.tree.parents == tuple(range(-1, len(paths) - 1))
    assert sum(gains[path] for path in paths) == max(sums, default=0.0)
    check_nodes(draft, fed, record)


def check_nodes(draft: Draft, fed: list[int | None], record: Record) -> None:
    paths = paths_of(draft.tree)
    assert [None if place is None else record.fed[place] for place in fed] == [
        path if path in record.fed else None for path in paths
    ]
    assert draft.probabilities == tuple(record.chances[path] for path in paths)


@given(st.integers(1, 6), st.integers(1, 6), st.data())
def test_width_1_grows_the_chain_of_the_best_candidates(nodes: int, depth: int, data: st.DataObject) -> None:
    growth = Growth(DraftPolicy(nodes, depth, 1, (MODEL,)))
    answers = data.draw(st.lists(st.integers(0, 9), min_size=depth, max_size=depth))
    growth.branch(ROOT, Proposal([(answers[0], data.draw(chances))], 0.0))
    for token in answers[1:]:
        selected = growth.select()
        if not selected:  # as deep as may be
            break
        assert len(selected) == 1
        growth.feed(selected)
        growth.branch(selected[0], Proposal([(token, data.draw(chances))], 0.0))
    draft, _ = finished(growth)
    assert draft.tree.tokens == tuple(answers[: min(nodes, depth)])
    assert draft.tree.parents == tuple(range(-1, len(draft.tree) - 1))


def test_what_both_sources_say_of_a_place_replaces_what_a_run_said_alone_and_is_said_of_no_place_beyond() -> None:
    """The text is 7 8 9 7 8: what followed two tokens was 9, then 7."""
    growth = Growth(DraftPolicy(8, 3, 2, (LOOKUP, MODEL)), Copies(NgramIndex([7, 8, 9, 7, 8])))
    growth.look_up()
    assert growth.nodes[0].probability == RIGHT[2]
    growth.branch(ROOT, Proposal([(6, 0.8), (9, 0.2)], 1.5))
    rest = 1 - COPIES[2]
    assert growth.select() == [0, 3]
    growth.feed([0, 3])
    growth.branch(3, Proposal([(5, 0.4), (4, 0.3)], 0.5))
    draft, fed = finished(growth)
    assert (draft.tree.tokens, draft.tree.parents) == ((9, 7, 8, 6, 5, 4), (-1, 0, 1, -1, 3, 3))
    assert draft.probabilities == (COPIES[2] + rest * 0.2, RIGHT[3], RIGHT[4], rest * 0.8, 0.4, 0.3)
    assert draft.sources == (LOOKUP, LOOKUP, LOOKUP, MODEL, MODEL, MODEL)
    assert draft.entropies == (0.0, 0.0, 0.0, 1.5, 0.5, 0.5)
    assert fed == [0, None, None, 1, None, None]


def test_what_is_certain_is_kept_whatever_the_least_gain() -> None:
    growth = Growth(DraftPolicy(8, 4, 2, (GRAMMAR, MODEL), min_gain=1.0))
    growth.add_run([(7, 1.0), (8, 1.0)], GRAMMAR)
    growth.branch(ROOT, Proposal([(6, 0.999), (7, 0.001)], 0.0))
    assert growth.select() == [0]
    draft, _ = finished(growth)
    assert draft.tree == TokenTree.chain([7, 8])


def test_nothing_to_draft_is_an_empty_tree() -> None:
    growth = Growth(DraftPolicy(4, 4, 2, ()))
    assert growth.select() == []
    draft, fed = finished(growth)
    assert (len(draft.tree), fed) == (0, [])
