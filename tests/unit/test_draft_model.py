"""The drafter's engine with a tiny draft model: what it proposes, and that its KV keeps in step with the text."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drafter.engine import MAX_DEPTH, MAX_NODES, DrafterEngine
from hetspec.decoding.choose import choose
from hetspec.decoding.constraint import Constraint, Past
from hetspec.decoding.history import History
from hetspec.decoding.sampling import NoiseKey, Sampling
from hetspec.decoding.tree import ROOT, TokenTree
from hetspec.drafting.draft_model import DraftModel
from hetspec.model.head import Head
from hetspec.model.kv import PAGE
from hetspec.model.transformer import Span, Transformer
from hetspec.rpc.messages import Draft, DraftItem, DraftPolicy, ErrorCode, PassResult, SessionUpdate, UnitError
from hetspec.rpc.work import Stopped
from tests.packs import TINY, MemoryPack

LOOKUP, MODEL = 1, 2
BARRED = np.array([0, 13])
CHAIN = DraftPolicy(max_nodes=6, max_depth=6, width=1, sources=(MODEL,))
TREE = DraftPolicy(max_nodes=10, max_depth=4, width=3, sources=(LOOKUP, MODEL))
NOISE = NoiseKey(5)
GREEDY = Sampling()
PACK = MemoryPack()
tokens = st.integers(0, TINY.vocab_size - 1)


def engine_of(kv_pages: int = 40, max_rows: int = 24) -> DrafterEngine:
    transformer = Transformer(PACK, threads=1, max_rows=max_rows, max_context=160, kv_capacity_tokens=kv_pages * PAGE)
    return DrafterEngine(TINY.vocab_size, DraftModel(transformer, Head(PACK, threads=1), BARRED))


ENGINE = engine_of()


def kv_held_tokens(engine: DrafterEngine) -> int:
    assert engine._model is not None
    return engine._model.transformer.pool.held_tokens


@dataclass
class Client:
    """One session as an orchestrator keeps it."""

    name: str
    ids: list[int] = field(default_factory=list)
    tree: TokenTree = TokenTree()
    epoch: int = 1
    fork_of: str = ""

    def item(self, commit: Sequence[int], append: Sequence[int], policy: DraftPolicy, sampling: Sampling) -> DraftItem:
        self.ids += [self.tree.tokens[node] for node in commit]
        digest = History(self.ids).hash
        update = SessionUpdate(self.name, self.epoch, len(self.ids), digest, tuple(commit), tuple(append), self.fork_of)
        self.ids += append
        self.fork_of = ""
        return DraftItem(update, policy, sampling, NOISE)


def run(engine: DrafterEngine, *items: DraftItem) -> PassResult[Draft]:
    return engine.run(items, lambda: False)


def drafted(
    engine: DrafterEngine, client: Client, commit: Sequence[int] = (), append: Sequence[int] = (),
    policy: DraftPolicy = TREE, sampling: Sampling = GREEDY,
) -> Draft:  # fmt: skip
    (draft,) = run(engine, client.item(commit, append, policy, sampling)).items
    assert isinstance(draft, Draft)
    client.tree = draft.tree
    return draft


def from_nothing(ids: Sequence[int], policy: DraftPolicy = TREE, sampling: Sampling = GREEDY) -> Draft:
    """The reference: what a session that holds nothing but these tokens drafts."""
    try:
        return drafted(ENGINE, Client("reference"), append=ids, policy=policy, sampling=sampling)
    finally:
        ENGINE.release(["reference"])


def plain(ids: Sequence[int], length: int, sampling: Sampling) -> list[int]:
    """Plain decoding with the draft model as the target, every token from a new pass over all."""
    model = Transformer(PACK, threads=1, max_rows=128, max_context=160, kv_capacity_tokens=4 * PAGE)
    head = Head(PACK, threads=1)
    out = list(ids)
    for _ in range(length):
        cache = model.new_cache()
        rows, _ = model.run([Span(cache, out)])
        cache.release()
        logits = head.logits(rows[-1:])[0]
        logits[BARRED] = -np.inf
        out.append(choose(logits, sampling, NOISE, len(out)))
    return out[len(ids) :]


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(1.0), Sampling(1.5, top_k=5), Sampling(0.8, top_p=0.9)])
@pytest.mark.parametrize("prompt", [[1], [3, 1, 4, 1, 5], list(range(37))])
def test_a_chain_of_the_target_itself_is_what_plain_decoding_emits(prompt: list[int], sampling: Sampling) -> None:
    draft = from_nothing(prompt, CHAIN, sampling)
    assert draft.tree == TokenTree.chain(plain(prompt, 6, sampling))
    assert draft.sources == (MODEL,) * 6
    assert all(0 < p <= 1 for p in draft.probabilities)


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(1.0)])
def test_a_tree_of_the_target_itself_begins_with_what_plain_decoding_emits(sampling: Sampling) -> None:
    prompt = [3, 1, 4, 1, 5]
    draft = from_nothing(prompt, replace(TREE, sources=(MODEL,)), sampling)
    first = [node for node in range(len(draft.tree)) if draft.tree.parents[node] == ROOT]
    likeliest = max(first, key=lambda node: draft.probabilities[node])
    assert draft.tree.tokens[likeliest] == plain(prompt, 1, sampling)[0]
    assert not set(draft.tree.tokens) & set(BARRED.tolist())


policies = st.builds(
    DraftPolicy, max_nodes=st.integers(1, 14), max_depth=st.integers(1, 5), width=st.integers(1, 4),
    sources=st.sampled_from([(MODEL,), (LOOKUP,), (LOOKUP, MODEL), ()]),
)  # fmt: skip
rounds = st.lists(
    st.tuples(st.integers(-1, 13), st.lists(tokens, max_size=3), policies, st.sampled_from([0.0, 1.0])), max_size=5
)


@given(prompt=st.lists(tokens, min_size=1, max_size=70), steps=rounds)
@settings(max_examples=40)
def test_whatever_was_drafted_and_committed_the_next_draft_is_a_new_sessions(prompt: list[int], steps: Any) -> None:
    client = Client("s")
    try:
        drafted(ENGINE, client, append=prompt)
        for node, append, policy, temperature in steps:
            path = client.tree.path(min(node, len(client.tree) - 1))
            found = drafted(ENGINE, client, path, append, policy, Sampling(temperature))
            assert found == from_nothing(client.ids, policy, Sampling(temperature))
    finally:
        ENGINE.release(["s"])
    assert kv_held_tokens(ENGINE) == 0


@given(prompt=st.lists(tokens, min_size=1, max_size=70), node=st.integers(-1, 9), data=st.data())
@settings(max_examples=30)
def test_a_fork_drafts_as_a_new_session_and_so_does_its_parent(
    prompt: list[int], node: int, data: st.DataObject
) -> None:
    client = Client("s")
    try:
        drafted(ENGINE, client, append=prompt, policy=data.draw(policies))
        drafted(ENGINE, client, client.tree.path(min(node, len(client.tree) - 1)), policy=data.draw(policies))
        at = data.draw(st.integers(1, len(client.ids)))
        twin = Client("twin", ids=client.ids[:at], fork_of="s")
        assert drafted(ENGINE, twin, append=[5]) == from_nothing([*client.ids[:at], 5])
        assert drafted(ENGINE, client, append=[6]) == from_nothing(client.ids)
    finally:
        ENGINE.release(["s", "twin"])
    assert kv_held_tokens(ENGINE) == 0


@given(st.lists(st.tuples(st.lists(tokens, min_size=1, max_size=40), policies), min_size=2, max_size=6))
@settings(max_examples=20)
def test_sessions_of_one_task_draft_what_each_drafts_alone(drawn: Any) -> None:
    clients = [Client(str(i)) for i in range(len(drawn))]
    items = [c.item((), ids, policy, Sampling(1.0)) for c, (ids, policy) in zip(clients, drawn, strict=True)]
    result = run(ENGINE, *items)
    ENGINE.release([c.name for c in clients])
    assert list(result.items) == [from_nothing(ids, policy, Sampling(1.0)) for ids, policy in drawn]
    trace = result.trace
    assert set(trace.rows_by_layer) <= {sum(trace.draft_step_rows)}
    assert len(trace.kv_len_by_row) == sum(trace.draft_step_rows)


def test_the_trace_counts_each_step() -> None:
    client = Client("s")
    result = run(ENGINE, client.item((), [1, 2, 3], CHAIN, Sampling()))
    ENGINE.release(["s"])
    assert result.trace.draft_step_rows == (3, 1, 1, 1, 1, 1)
    assert result.trace.kv_len_by_row == (1, 2, 3, 4, 5, 6, 7, 8)
    assert result.trace.head_rows == 6
    assert result.trace.rows_by_layer == (8,) * TINY.n_layers


def test_lookup_and_model_grow_one_tree() -> None:
    text = [7, 8, 9, 10, 7, 8]
    draft = from_nothing(text)
    assert set(draft.sources) == {LOOKUP, MODEL}
    run_of_text = [draft.tree.child(ROOT, 9)]
    assert run_of_text[0] is not None
    assert draft.sources[run_of_text[0]] == LOOKUP
    below = [draft.sources[n] for n in range(len(draft.tree)) if draft.tree.parents[n] == run_of_text[0]]
    assert MODEL in below  # the model was fed what lookup found


def expected_tokens(draft: Draft) -> float:
    assert draft.tree.parents == tuple(range(-1, len(draft.tree) - 1))
    return sum(itertools.accumulate(draft.probabilities, operator.mul))


def test_a_chain_of_both_sources_promises_no_less_than_the_token_that_they_find_likeliest_together() -> None:
    both = replace(CHAIN, sources=(LOOKUP, MODEL))
    text = [7, 8, 9, 10, 7, 8]
    first = from_nothing(text, DraftPolicy(8, 1, 8, (LOOKUP, MODEL)))
    assert expected_tokens(from_nothing(text, both)) >= max(first.probabilities)


def test_a_chain_of_lookup_alone_is_what_followed() -> None:
    text = [7, 8, 9, 10, 7, 8]
    assert from_nothing(text, replace(CHAIN, sources=(LOOKUP,))).tree == TokenTree.chain([9, 10, 7, 8])
    lookup_only = DrafterEngine(TINY.vocab_size, None)
    draft = drafted(lookup_only, Client("s"), append=text, policy=replace(CHAIN, sources=(LOOKUP,)))
    assert draft.tree == TokenTree.chain([9, 10, 7, 8])


REPEATED = [7, 8, 9, 10] * 15 + [7, 8]  # 62 tokens: two slots are left of two pages


@pytest.mark.parametrize("policy", [TREE, replace(CHAIN, sources=(LOOKUP, MODEL))])
@pytest.mark.parametrize("kv_pages", [2, 3])
def test_with_the_kv_full_lookup_goes_on_and_the_session_is_sound_when_there_is_room_again(
    kv_pages: int, policy: DraftPolicy
) -> None:
    """Two pages: no room for the text itself. Three: for the text and the first steps of the tree."""
    engine = engine_of(kv_pages)
    drafted(engine, Client("other"), append=[1], policy=CHAIN)
    client = Client("s")
    draft = drafted(engine, client, append=REPEATED, policy=policy)
    assert len(draft.tree)
    if kv_pages == 2:
        assert set(draft.sources) == {LOOKUP}
    for _ in range(2):
        draft = drafted(engine, client, client.tree.path(len(client.tree) - 1), [9], policy=policy)
    assert kv_held_tokens(engine) <= kv_pages * PAGE
    engine.release(["other", "s"])
    assert kv_held_tokens(engine) == 0


@pytest.mark.parametrize("leaf", [True, False])
def test_after_a_draft_that_ran_out_of_kv_every_path_can_be_committed(leaf: bool) -> None:
    engine = engine_of(kv_pages=3)
    drafted(engine, Client("other"), append=[1], policy=CHAIN)
    client = Client("s")
    cut_short = drafted(engine, client, append=REPEATED)
    assert cut_short != from_nothing(client.ids)  # two slots were left for the tree
    path = client.tree.path(len(client.tree) - 1 if leaf else 0)
    engine.release(["other"])
    assert drafted(engine, client, path, [9]) == from_nothing(client.ids)


@pytest.mark.parametrize("looks", range(4))
def test_a_draft_that_is_stopped_leaves_the_session_sound(looks: int) -> None:
    client = Client("s")
    drafted(ENGINE, client, append=list(range(1, 12)))
    asked = count()
    item = client.item(client.tree.path(len(client.tree) - 1), [3], TREE, Sampling())
    with pytest.raises(Stopped):
        ENGINE.run([item], lambda: next(asked) >= looks)
    client.tree = TokenTree()
    assert drafted(ENGINE, client, append=[4]) == from_nothing(client.ids)
    ENGINE.release(["s"])


def test_every_branch_is_adjusted_by_its_own_path() -> None:
    """Below each node hangs what would come first, were the path down to it part of the output."""
    prompt = list(range(1, 12))
    sampling = Sampling(0.7, repetition_penalty=1.5, frequency_penalty=0.9, bias=((7, 2.0),))
    policy = DraftPolicy(24, 3, 3, (MODEL,))

    def tree_after(path: list[int], grown: DraftPolicy) -> TokenTree:
        client = Client("s")
        item = client.item((), prompt + path, grown, sampling)
        past = Past(tuple(sorted(set(prompt))), (5, *path))
        (draft,) = run(ENGINE, replace(item, past=past)).items
        ENGINE.release(["s"])
        assert isinstance(draft, Draft)
        return draft.tree

    def children(tree: TokenTree, parent: int) -> list[int]:
        return sorted(token for token, above in zip(tree.tokens, tree.parents, strict=True) if above == parent)

    tree = tree_after([], policy)
    inner = [node for node in range(len(tree)) if children(tree, node)]
    assert len(inner) >= 3
    for node in inner:
        path = [tree.tokens[above] for above in tree.path(node)]
        first_level = tree_after(path, replace(policy, max_depth=1))
        assert set(children(tree, node)) <= set(children(first_level, ROOT))


GOOD = Client("good").item((), [1, 2], TREE, Sampling())
BROKEN = {
    "policy.max_nodes = 0": replace(GOOD, policy=replace(TREE, max_nodes=0)),
    f"policy.max_nodes = {MAX_NODES + 1}": replace(GOOD, policy=replace(TREE, max_nodes=MAX_NODES + 1)),
    f"policy.max_depth = {MAX_DEPTH + 1}": replace(GOOD, policy=replace(TREE, max_depth=MAX_DEPTH + 1)),
    "policy.width = 0": replace(GOOD, policy=replace(TREE, width=0)),
    "policy.sources: 3 is not one of": replace(GOOD, policy=replace(TREE, sources=(3,))),
    r"append\[1\] = 40": replace(GOOD, update=replace(GOOD.update, append=(1, 40))),
    r"sampling.bias\[0\] = 40": replace(GOOD, sampling=Sampling(bias=((40, 1.0),))),
    r"constraint.withheld\[1\] = 40": replace(GOOD, constraint=Constraint((3, 40), 9)),
    r"past.output\[0\] = 41": replace(GOOD, past=Past(output=(41,))),
    "good is in this task twice": GOOD,
}


@pytest.mark.parametrize("message", list(BROKEN))
def test_a_broken_item_is_refused_by_name_and_the_others_are_drafted(message: str) -> None:
    broken = BROKEN[message]
    other = broken if broken is GOOD else replace(broken, update=replace(broken.update, session="other"))
    first, refused = run(ENGINE, GOOD, other).items
    ENGINE.release(["good", "other"])
    assert first == from_nothing([1, 2])
    assert isinstance(refused, UnitError)
    assert refused.code == ErrorCode.INVALID
    with pytest.raises(UnitError, match=message):
        raise refused


def test_near_the_end_of_the_drafts_context_lookup_alone_drafts() -> None:
    text = ([7, 8, 9, 10] * 40)[:157]
    assert set(from_nothing(text).sources) == {LOOKUP}
    assert MODEL in from_nothing(text[:-1]).sources
    assert len(from_nothing(text, replace(TREE, sources=(MODEL,))).tree) == 0


def test_a_session_without_a_token_has_no_draft() -> None:
    assert len(from_nothing([]).tree) == 0


def test_an_engine_without_a_model_knows_lookup_alone() -> None:
    engine = DrafterEngine(TINY.vocab_size, None)
    assert engine.sources == (LOOKUP,)
    draft = drafted(engine, Client("s"), append=[1, 2, 3, 1, 2], policy=replace(TREE, sources=(LOOKUP,)))
    assert draft.tree == TokenTree.chain([3, 1, 2])
    (refused,) = run(engine, Client("t").item((), [1], TREE, Sampling())).items
    assert isinstance(refused, UnitError)
