"""Look-ahead of the drafter's engine: a tree grown on in parts against trees drafted at once, and the likeliest
outcomes against all that new sessions propose behind every path."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, count
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from drafter.engine import MAX_NODES, DrafterEngine
from hetspec.decoding.constraint import Constraint, DeadEnd, Grammar, GrammarKind, Past
from hetspec.decoding.history import History
from hetspec.decoding.sampling import NoiseKey, Sampling
from hetspec.decoding.tree import ROOT, TokenTree
from hetspec.drafting.copies import COPIES
from hetspec.drafting.costs import CostCurve, DraftCosts
from hetspec.drafting.draft_model import DraftModel
from hetspec.model.forward import PAGE
from hetspec.model.head import Head
from hetspec.model.projection import FEATURES, Projection
from hetspec.model.transformer import Transformer
from hetspec.rpc.messages import (
    Draft,
    DraftItem,
    DraftPolicy,
    ErrorCode,
    LookAhead,
    PassResult,
    SessionUpdate,
    UnitError,
    rows_to_bytes,
)
from hetspec.rpc.work import Stopped
from tests.packs import TINY, MemoryPack

LOOKUP, MODEL = 1, 2
PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]
GREEDY, SAMPLED = Sampling(), Sampling(0.8)
ADJUSTED = Sampling(0.7, repetition_penalty=1.5, frequency_penalty=0.9, bias=((7, 2.0),))
TREE = DraftPolicy(max_nodes=8, max_depth=3, width=3, sources=(MODEL,))


def chain(length: int, sources: tuple[int, ...] = (MODEL,)) -> DraftPolicy:
    return DraftPolicy(length, length, 1, sources)


def chains(number: int, length: int, sources: tuple[int, ...] = (MODEL,)) -> DraftPolicy:
    return DraftPolicy(number * length, length, number, sources)


def engine_of(reads_features: bool, kv_pages: int = 60, max_context: int = 160) -> DrafterEngine:
    pack = MemoryPack(reads_features=reads_features, head_vocab_size=25 if reads_features else 0)
    transformer = Transformer(pack, threads=1, max_rows=24, max_context=max_context, kv_capacity_tokens=kv_pages * PAGE)
    features = Projection(pack, FEATURES, TINY.hidden_size, threads=1) if reads_features else None
    return DrafterEngine(TINY.vocab_size, DraftModel(transformer, Head(pack, threads=1), np.array([0, 13]), features))


TOKENS, FEATURED = engine_of(False), engine_of(True)
both = pytest.mark.parametrize("engine", [TOKENS, FEATURED], ids=["reads tokens", "reads features"])


def features_before(ids: Sequence[int], rows: int) -> bytes:
    """The target's row before each of the last tokens: any function of all that stands before."""
    ends = range(len(ids) - rows, len(ids))
    found = [np.random.default_rng([end, *ids[:end]]).normal(0, 2, TINY.hidden_size) for end in ends]
    return rows_to_bytes(np.array(found, np.float32))


@dataclass
class Client:
    """One session as an orchestrator keeps it."""

    engine: DrafterEngine
    sampling: Sampling = GREEDY
    constraint: Constraint = Constraint()
    name: str = "s"
    ids: list[int] = field(default_factory=list)
    draft: Draft = Draft()

    def item(self, policy: DraftPolicy, commit: Sequence[int] = (), append: Sequence[int] = ()) -> DraftItem:
        before = max(1, len(self.ids))
        self.ids += [self.draft.tree.tokens[node] for node in commit]
        update = SessionUpdate(self.name, 1, len(self.ids), History(self.ids).hash, tuple(commit), tuple(append))
        self.ids += append
        hidden = b""
        if self.engine is FEATURED:
            hidden = features_before(self.ids, max(0, len(self.ids) - before))
        past = Past(tuple(sorted(set(self.ids))), tuple(self.ids[len(PROMPT) :]))
        return DraftItem(update, policy, self.sampling, NoiseKey(5), hidden, self.constraint, past)

    def ahead_item(self, outcomes: int, since: int, policy: DraftPolicy) -> DraftItem:
        return replace(self.item(policy), hidden=b"", look_ahead=LookAhead(outcomes, since))

    def drafts(self, policy: DraftPolicy, commit: Sequence[int] = (), append: Sequence[int] = ()) -> Draft:
        return self.run(self.item(policy, commit, append))

    def looks(self, outcomes: int, since: int, policy: DraftPolicy) -> Draft:
        return self.run(self.ahead_item(outcomes, since, policy))

    def run(self, item: DraftItem) -> Draft:
        (draft,) = result_of(self.engine, item).items
        assert isinstance(draft, Draft), draft
        self.draft = draft
        return draft


def result_of(engine: DrafterEngine, *items: DraftItem) -> PassResult[Draft]:
    return engine.run(items, lambda: False)


def held_tokens(engine: DrafterEngine) -> int:
    assert isinstance(engine._model, DraftModel)
    return engine._model.transformer.pool.held_tokens


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    yield
    for engine in (TOKENS, FEATURED):
        engine.release(["s", "reference"])
        assert (held_tokens(engine), len(engine.sessions)) == (0, 0)


def from_nothing(client: Client, policy: DraftPolicy, path: Sequence[int] = ()) -> Draft:
    """What a new session drafts whose text is the client's, then a path."""
    reference = Client(client.engine, client.sampling, client.constraint, "reference")
    try:
        return reference.drafts(policy, append=[*client.ids, *path])
    finally:
        client.engine.release(["reference"])


def path_of(tree: TokenTree, node: int) -> tuple[int, ...]:
    return tuple(tree.tokens[above] for above in tree.path(node))


def gain_of(draft: Draft, node: int) -> float:
    return float(np.prod([draft.probabilities[above] for above in draft.tree.path(node)]))


Told = tuple[float, int, float]


def by_path(draft: Draft, below: int = ROOT) -> dict[tuple[int, ...], Told]:
    """What is told of each node below one, by the tokens between."""
    told = zip(draft.probabilities, draft.sources, draft.entropies, strict=True)
    paths = [(draft.tree.path(node), one) for node, one in enumerate(told)]
    start = 0 if below == ROOT else len(draft.tree.path(below))
    return {
        tuple(draft.tree.tokens[n] for n in path[start:]): one
        for path, one in paths
        if len(path) > start and (below == ROOT or below in path)
    }


def assert_grown_from(draft: Draft, before: Draft) -> None:
    """The nodes returned before come first, unchanged."""
    size = len(before.tree)
    assert draft.tree.tokens[:size] == before.tree.tokens
    assert draft.tree.parents[:size] == before.tree.parents
    assert draft.probabilities[:size] == before.probabilities
    assert draft.sources[:size] == before.sources
    assert draft.entropies[:size] == before.entropies


@both
@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED, Sampling(1.5, top_k=5), ADJUSTED])
def test_a_chain_drafted_in_parts_is_the_chain_drafted_at_once(engine: DrafterEngine, sampling: Sampling) -> None:
    client = Client(engine, sampling)
    client.drafts(chain(3), append=PROMPT)
    client.looks(1, 2, chain(3))
    draft = client.looks(1, 5, chain(3))
    assert draft == from_nothing(client, chain(9))
    assert len(draft.tree) == 9


class Sums:
    """Stands for a grammar: what follows must bring the sum of the output to a multiple of three, and no output is
    longer than eight."""

    def __init__(self, output: Sequence[int]) -> None:
        self._output = output

    def allow(self, logits: NDArray[np.float32], path: Sequence[int]) -> None:
        if len(self._output) + len(path) >= 8:
            raise DeadEnd("no more")
        logits[(np.arange(len(logits)) + sum(self._output) + sum(path)) % 3 != 0] = -np.inf

    def follows(self, run: Sequence[int]) -> int:
        sums = list(accumulate(run, initial=sum(self._output)))[1:]
        wrong = [i for i, total in enumerate(sums) if total % 3 or len(self._output) + i >= 8]
        return min(wrong, default=len(run))


class SumsMatchers:
    def at(self, session: str, grammar: Grammar, output: tuple[int, ...]) -> Sums:
        return Sums(output)


def test_a_grammar_is_followed_along_the_path_and_may_end_it() -> None:
    engine = engine_of(False)
    engine._matchers = SumsMatchers()  # type: ignore[assignment]
    client = Client(engine, SAMPLED, Constraint(grammar=Grammar(GrammarKind.REGEX, "x")))
    repeated = [3, 6, 9, 7, 3, 6]
    client.drafts(chain(3, (LOOKUP, MODEL)), append=repeated)
    draft = client.looks(3, 0, replace(chains(3, 9), sources=(LOOKUP, MODEL)))
    engine.release(["s"])
    paths = [path_of(draft.tree, node) for node in range(len(draft.tree))]
    assert all(sum(path) % 3 == 0 for path in paths)
    assert max(map(len, paths)) == 8


def likeliest_outcomes(client: Client, since: int, number: int) -> list[tuple[int, ...]]:
    """Paths, from what new sessions propose behind every end."""
    draft = client.draft
    found: list[tuple[float, tuple[int, ...]]] = []
    for end in range(since or ROOT, len(draft.tree)):
        path = () if end == ROOT else path_of(draft.tree, end)
        gain = 1.0 if end == ROOT else gain_of(draft, end)
        first = from_nothing(client, DraftPolicy(8, 1, 8, (MODEL,)), path)
        for token, probability in zip(first.tree.tokens, first.probabilities, strict=True):
            if draft.tree.child(end, token) is None:
                found.append((gain * probability, (*path, token)))
    return [path for _, path in sorted(found, reverse=True)[:number]]


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED, ADJUSTED])
@pytest.mark.parametrize(("policy", "since"), [(chain(1), 0), (chain(4), 0), (chain(4), 2), (TREE, 0), (TREE, 1)])
@pytest.mark.parametrize("number", [1, 4, 8])
def test_the_outcomes_are_the_likeliest_of_all_ends(
    number: int, policy: DraftPolicy, since: int, sampling: Sampling
) -> None:
    client = Client(TOKENS, sampling)
    before = client.drafts(policy, append=PROMPT)
    expected = likeliest_outcomes(client, since, number)
    draft = client.looks(number, since, chains(number, 1))
    assert_grown_from(draft, before)
    assert {path_of(draft.tree, node) for node in range(len(before.tree), len(draft.tree))} == set(expected)


def test_outcomes_of_a_later_batch_hang_below_its_nodes() -> None:
    client = Client(TOKENS, SAMPLED)
    client.drafts(chain(3), append=PROMPT)
    batch = client.looks(2, 0, chains(2, 3))
    since = 3
    expected = likeliest_outcomes(client, since, 4)
    draft = client.looks(4, since, chains(4, 1))
    assert {path_of(draft.tree, node) for node in range(len(batch.tree), len(draft.tree))} == set(expected)


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED, ADJUSTED])
@pytest.mark.parametrize("policy", [chain(3), TREE])
@pytest.mark.parametrize("number", [1, 4])
def test_below_each_outcome_hangs_the_chain_that_follows_it(
    number: int, policy: DraftPolicy, sampling: Sampling
) -> None:
    client = Client(TOKENS, sampling)
    before = client.drafts(policy, append=PROMPT)
    draft = client.looks(number, 0, chains(number, 4))
    outcomes = [i for i in range(len(before.tree), len(draft.tree)) if draft.tree.parents[i] < len(before.tree)]
    assert len(outcomes) == number
    assert len(draft.tree) == len(before.tree) + 4 * number
    for outcome in outcomes:
        assert by_path(draft, outcome) == by_path(from_nothing(client, chain(3), path_of(draft.tree, outcome)))


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED])
def test_a_policy_wider_than_its_outcomes_grows_the_tree_that_follows_them(sampling: Sampling) -> None:
    client = Client(TOKENS, sampling)
    before = client.drafts(TREE, append=PROMPT)
    draft = client.looks(1, 0, DraftPolicy(12, 4, 3, (MODEL,)))
    (outcome,) = [i for i in range(len(before.tree), len(draft.tree)) if draft.tree.parents[i] < len(before.tree)]
    expected = from_nothing(client, DraftPolicy(11, 3, 3, (MODEL,)), path_of(draft.tree, outcome))
    assert by_path(draft, outcome) == by_path(expected)


def test_what_is_less_likely_than_the_least_gain_is_left_out() -> None:
    client = Client(TOKENS, SAMPLED)
    before = client.drafts(TREE, append=PROMPT)
    policy = replace(chains(4, 3), min_gain=0.05)
    draft = client.looks(4, 0, policy)
    new = range(len(before.tree), len(draft.tree))
    assert 0 < len(new) < policy.max_nodes
    assert all(gain_of(draft, node) >= 0.05 for node in new)


tokens = st.integers(0, TINY.vocab_size - 1)
policies = st.builds(
    DraftPolicy, max_nodes=st.integers(1, 14), max_depth=st.integers(1, 4), width=st.integers(1, 4),
    sources=st.sampled_from([(MODEL,), (LOOKUP, MODEL)]), min_gain=st.sampled_from([0.0, 0.0, 0.01]),
)  # fmt: skip
looks = st.tuples(st.integers(1, 5), st.integers(0, 13), policies, st.sampled_from([0, 1, 3, 99, 99, 99]))
rounds = st.lists(
    st.tuples(st.lists(looks, max_size=3), st.integers(-1, 30), st.lists(tokens, max_size=2), policies),
    min_size=1, max_size=3,
)  # fmt: skip


def look(client: Client, outcomes: int, since: int, policy: DraftPolicy, stop: int) -> None:
    """Asks; where it stops before its end nothing has happened."""
    before, asked = client.draft, count()
    item = client.ahead_item(outcomes, min(since, max(0, len(before.tree) - 1)), policy)
    try:
        (draft,) = client.engine.run([item], lambda: next(asked) >= stop).items
    except Stopped:
        return
    assert isinstance(draft, Draft)
    client.draft = draft
    assert_grown_from(draft, before)
    assert len(draft.tree) <= len(before.tree) + policy.max_nodes
    assert max(draft.tree.depths(), default=0) <= max(before.tree.depths(), default=0) + policy.max_depth


@both
@given(st.sampled_from([0.0, 0.8]), st.lists(tokens, min_size=1, max_size=40), rounds)
@settings(max_examples=25)
def test_whatever_was_looked_ahead_and_committed_the_next_draft_is_a_new_sessions(
    engine: DrafterEngine, temperature: float, prompt: list[int], steps: Any
) -> None:
    client = Client(engine, Sampling(temperature))
    try:
        client.drafts(TREE, append=prompt)
        for ahead, node, bonus, policy in steps:
            for one in ahead:
                look(client, *one)
            path = client.draft.tree.path(min(node, len(client.draft.tree) - 1))
            assert client.drafts(policy, path, bonus) == from_nothing(client, policy)
    finally:
        engine.release(["s"])


@both
@pytest.mark.parametrize("stop", range(3))
def test_a_look_ahead_that_is_stopped_has_not_happened(engine: DrafterEngine, stop: int) -> None:
    def looked(is_stopped_before: bool) -> list[Draft]:
        client = Client(engine, SAMPLED)
        client.drafts(TREE, append=PROMPT)
        first = client.looks(2, 0, chains(2, 2))
        item = client.ahead_item(4, 0, chains(4, 4))
        if is_stopped_before:
            asked = count()
            with pytest.raises(Stopped):
                engine.run([item], lambda: next(asked) >= stop)
        second = client.run(item)
        third = client.drafts(TREE, second.tree.path(len(second.tree) - 1), [7])
        engine.release(["s"])
        return [first, second, third]

    assert looked(True) == looked(False)


def test_it_is_asked_whether_to_stop_at_every_step() -> None:
    client = Client(TOKENS)
    client.drafts(chain(3), append=PROMPT)
    item = client.ahead_item(1, 2, chain(5))
    asked = count()
    TOKENS.run([item], lambda: next(asked) < 0)
    assert next(asked) >= 5


@both
def test_each_step_is_told_by_its_rows_and_what_they_attend_to(engine: DrafterEngine) -> None:
    client = Client(engine)
    client.drafts(chain(3), append=PROMPT)
    trace = result_of(engine, client.ahead_item(1, 2, chain(4))).trace
    attended = len(PROMPT) - (engine is FEATURED)  # its rows are pairs
    assert trace.draft_step_rows == (1, 1, 1, 1)
    assert trace.kv_len_by_row == tuple(attended + depth for depth in (3, 4, 5, 6))
    assert trace.head_rows == 4


@both
def test_below_what_lookup_drafted_alone_the_model_reads_the_text_first(engine: DrafterEngine) -> None:
    """Then the path: at once where tokens are all it reads, else level by level."""
    client = Client(engine)
    client.drafts(chain(3, (LOOKUP,)), append=[7, 8, 9, 10, 7, 8])
    assert client.draft.tree == TokenTree.chain([9, 10, 7])
    result = result_of(engine, client.ahead_item(1, 2, chain(2)))
    read = 6 - (engine is FEATURED)
    assert result.trace.draft_step_rows == (read, 3, 1) if engine is TOKENS else (read, 1, 1, 1, 1)
    (draft,) = result.items
    assert isinstance(draft, Draft)
    assert draft.sources == (LOOKUP,) * 3 + (MODEL,) * 2
    if engine is TOKENS:
        following = from_nothing(client, chain(2), [9, 10, 7])
        assert draft.tree.tokens[3:] == following.tree.tokens
        assert draft.probabilities[3:] == following.probabilities


def test_without_a_model_lookup_goes_on_below_outcomes() -> None:
    client = Client(DrafterEngine(TINY.vocab_size, None))
    text = [1, 2, 3, 4, 5, 6, 1, 2, 3, 9, 8, 7, 1, 2]
    assert client.drafts(chain(2, (LOOKUP,)), append=text).tree == TokenTree.chain([3, 9])
    draft = client.looks(2, 0, chains(2, 3, (LOOKUP,)))
    assert {path_of(draft.tree, node) for node in range(2, 8)} == {
        *((3, 4), (3, 4, 5), (3, 4, 5, 6)),
        *((3, 9, 8), (3, 9, 8, 7), (3, 9, 8, 7, 1)),
    }
    assert set(draft.sources) == {LOOKUP}
    assert client.drafts(chain(2, (LOOKUP,)), draft.tree.path(7), [11]).tree == TokenTree()


def test_lookup_and_model_look_ahead_together() -> None:
    client = Client(TOKENS)
    before = client.drafts(chain(2, (LOOKUP, MODEL)), append=[7, 8, 9, 10, 11, 7, 8])
    draft = client.looks(4, 0, DraftPolicy(20, 4, 5, (LOOKUP, MODEL)))
    assert set(draft.sources[len(before.tree) :]) == {LOOKUP, MODEL}
    found = by_path(draft)
    first = from_nothing(client, DraftPolicy(8, 1, 8, (MODEL,)))
    copied = COPIES[2]  # of the token that followed the last two
    for path, (probability, _, _) in by_path(first).items():
        if path not in by_path(before):
            assert found.get(path, (probability * (1 - copied), 0, 0.0))[0] == probability * (1 - copied)


def test_a_tree_holds_no_more_nodes_than_may_be() -> None:
    client = Client(TOKENS)
    client.drafts(DraftPolicy(250, 8, 24, (MODEL,)), append=PROMPT)
    assert len(client.draft.tree) == 250
    assert len(client.looks(4, 0, chains(4, 6)).tree) == MAX_NODES
    assert len(client.looks(4, 0, chains(4, 6)).tree) == MAX_NODES
    assert len(client.drafts(TREE, client.draft.tree.path(MAX_NODES - 1), [1]).tree) == TREE.max_nodes


def test_an_empty_tree_is_looked_ahead_of_as_if_it_were_new() -> None:
    client = Client(TOKENS)
    client.drafts(chain(1, ()), append=PROMPT)
    draft = client.looks(1, 0, chain(5))
    assert by_path(draft) == by_path(from_nothing(client, chain(5)))


def test_with_the_kv_full_what_is_known_is_looked_ahead_to_and_the_session_is_sound_when_there_is_room_again() -> None:
    engine = engine_of(False, kv_pages=3)
    other, client = Client(engine, name="other"), Client(engine)
    other.drafts(chain(1), append=[1])
    before = client.drafts(replace(TREE, max_depth=2), append=list(range(1, 40)) + list(range(1, 21)))
    draft = client.looks(3, 0, chains(3, 40))
    assert 0 < len(draft.tree) - len(before.tree) < 120
    engine.release(["other"])
    found = client.drafts(TREE, draft.tree.path(len(draft.tree) - 1), [9])
    engine.release(["s"])
    assert found == from_nothing(replace(client, engine=TOKENS), TREE)


def test_near_the_end_of_the_drafts_context_nothing_is_asked_of_the_model() -> None:
    client = Client(TOKENS)
    text = [1 + i % 39 for i in range(150)]
    client.drafts(chain(4), append=text)
    result = result_of(TOKENS, client.ahead_item(1, 3, chain(6)))
    assert len(result.trace.draft_step_rows) == 6
    assert not result_of(TOKENS, client.ahead_item(1, 9, chain(1))).trace.draft_step_rows


CURVE = CostCurve(((1, 1), (300, 1)))
BROKEN = {
    "look_ahead.outcomes = 0, must be in [1, 256]": lambda item: replace(item, look_ahead=LookAhead(0, 0)),
    "look_ahead.since = 3, must be below the tree's 3 nodes": lambda item: replace(item, look_ahead=LookAhead(1, 3)),
    "look_ahead: update.commit must be empty with it": lambda item: replace(
        item, update=replace(item.update, commit=(0,))
    ),
    "look_ahead: update.append must be empty with it": lambda item: replace(
        item, update=replace(item.update, append=(4,))
    ),
    "look_ahead: hidden must be empty with it": lambda item: replace(item, hidden=bytes(4 * TINY.hidden_size)),
    "look_ahead: policy.costs must be empty with it": lambda item: replace(
        item, policy=replace(item.policy, costs=DraftCosts(0, CURVE, CURVE))
    ),
}


@pytest.mark.parametrize("message", list(BROKEN))
def test_a_broken_look_ahead_is_refused_by_name_and_has_not_happened(message: str) -> None:
    client = Client(FEATURED)
    client.drafts(chain(3), append=PROMPT)
    item = client.ahead_item(1, 0, chain(2))
    (refused,) = result_of(FEATURED, BROKEN[message](item)).items
    assert isinstance(refused, UnitError)
    assert (refused.code, str(refused).split(": ", 1)[1]) == (ErrorCode.INVALID, message)
    assert len(client.run(item).tree) == 5


def test_a_look_ahead_of_another_text_is_a_session_lost() -> None:
    client = Client(TOKENS)
    client.drafts(chain(3), append=PROMPT)
    item = client.ahead_item(1, 0, chain(2))
    (refused,) = result_of(TOKENS, replace(item, update=replace(item.update, committed_hash=1))).items
    assert isinstance(refused, UnitError)
    assert refused.code == ErrorCode.SESSION_LOST
