"""Speculation in one process emits what plain decoding does, and shows what a pass was made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hetspec.decoding.adjust import Adjuster
from hetspec.decoding.choose import choose
from hetspec.decoding.constraint import Constraint, Past
from hetspec.decoding.sampling import NoiseKey, Sampling
from hetspec.decoding.tree import ROOT
from hetspec.drafting.draft_model import DraftModel, DraftRequest
from hetspec.drafting.growth import Growth
from hetspec.model.head import Head
from hetspec.model.kv import PAGE
from hetspec.model.projection import FEATURES, Projection
from hetspec.model.transformer import Rows, Span, Transformer
from hetspec.rpc.messages import DraftPolicy
from hetspec.training.corpus.talk import ANSWERED
from hetspec.training.speculation.answers import AT_ONCE, STRETCH, Answer, Answerer, Question
from hetspec.training.speculation.replay import ReplayedRound, replay
from hetspec.training.speculation.rounds import PLAIN, Round, Task
from hetspec.training.speculation.speculator import Speculator
from tests.packs import TINY, MemoryPack

LOOKUP, MODEL = 1, 2
FED = -1
MISSING = np.array([0, 13])
POLICIES = {
    "chain": DraftPolicy(5, 5, 1, (MODEL,)),
    "tree": DraftPolicy(16, 4, 3, (LOOKUP, MODEL)),
    "model tree": DraftPolicy(12, 3, 3, (MODEL,)),
    "lookup": DraftPolicy(8, 6, 2, (LOOKUP,)),
}
tokens = st.integers(0, TINY.vocab_size - 1)


def transformer(pack: MemoryPack, max_rows: int = 64) -> Transformer:
    return Transformer(pack, threads=1, max_rows=max_rows, max_context=160, kv_capacity_tokens=16 * PAGE)


def feature_draft() -> DraftModel:
    """Of two layers, which reads the target's rows and knows a part of the vocabulary."""
    pack = MemoryPack(seed=2, n_layers=2, reads_features=True, head_vocab_size=25)
    features = Projection(pack, FEATURES, TINY.hidden_size, threads=1)
    return DraftModel(transformer(pack), Head(pack, threads=1), MISSING, features)


@lru_cache
def speculator(draft_seed: int, end_ids: frozenset[int] = frozenset(), max_rows: int = 24) -> Speculator:
    """draft_seed 0: the target drafts for itself; FED: a draft model that reads features."""
    pack, theirs = MemoryPack(seed=0), MemoryPack(seed=abs(draft_seed))
    draft = DraftModel(transformer(theirs), Head(theirs, threads=1), MISSING)
    head = Head(pack, threads=1)
    return Speculator(
        transformer(pack, max_rows),
        head,
        missing=MISSING,
        end_ids=end_ids,
        draft=feature_draft() if draft_seed == FED else draft,
    )


def rows_of(ids: Sequence[int], layers: int = TINY.n_layers) -> Rows:
    """The reference: a model that has no more layers, over all tokens at once."""
    model = transformer(MemoryPack(seed=0, n_layers=layers), 160)
    rows, _ = model.run([Span(model.new_cache(), ids)])
    model.close()
    return rows


def plain(task: Task) -> list[int]:
    """The reference: every token from a new pass over all that is before it."""
    model, head = transformer(MemoryPack(seed=0), 160), Head(MemoryPack(seed=0), threads=1)
    ids = list(task.prompt)
    for _ in range(task.max_tokens):
        cache = model.new_cache()
        rows, _ = model.run([Span(cache, ids)])
        cache.release()
        logits = head.logits(rows[-1:])[0]
        logits[MISSING] = -np.inf
        ids.append(choose(logits, task.sampling, task.noise, len(ids)))
    return ids[len(task.prompt) :]


def emitted(rounds: Sequence[Round]) -> list[int]:
    return [token for one in rounds for token in one.emitted]


@pytest.mark.parametrize("draft_seed", [0, 1, FED])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("policy", [*POLICIES.values(), PLAIN], ids=[*POLICIES, "plain"])
@given(prompt=st.lists(tokens, min_size=1, max_size=60), length=st.integers(1, 20))
@settings(max_examples=8)
def test_what_is_emitted_is_what_plain_decoding_emits(
    policy: DraftPolicy, temperature: float, draft_seed: int, prompt: list[int], length: int
) -> None:
    models = speculator(draft_seed)
    task = Task(tuple(prompt), policy, length, Sampling(temperature), NoiseKey(3))
    assert emitted(list(models.rounds(task))) == plain(task)
    assert models.target.pool.held_tokens == 0
    assert models.draft is not None
    assert models.draft.transformer.pool.held_tokens == 0


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_chain_drafted_by_the_target_itself_is_accepted_whole(temperature: float) -> None:
    task = Task((3, 1, 4), POLICIES["chain"], 19, Sampling(temperature), NoiseKey(3))
    first, *rounds = speculator(0).rounds(task)
    assert len(first.draft.tree) == 0
    assert len(first.emitted) == 1
    assert [len(one.emitted) for one in rounds] == [6, 6, 6]


@pytest.mark.parametrize("length", [1, 2, 70])
def test_a_draft_that_reads_features_is_given_the_targets_rows_of_all_that_is_committed(length: int) -> None:
    """Its drafts are those of a new session that is given all tokens and rows at once."""
    models, draft = speculator(FED), feature_draft()
    task = Task(tuple(i % TINY.vocab_size for i in range(length)), POLICIES["model tree"], 12)
    ids = list(task.prompt)
    for one in models.rounds(task):
        left = length + task.max_tokens - len(ids)
        if len(ids) > length and left > 1:
            policy = replace(task.policy, max_depth=min(task.policy.max_depth, left - 1))
            state, growth = draft.new_state(), Growth(policy)
            state.append(ids)
            state.give(rows_of(ids)[:-1])
            state.rewind(ids[-1])
            adjuster = Adjuster(task.sampling, Constraint(), Past(), None)
            draft.grow([DraftRequest(state, growth, task.sampling, task.noise, len(ids), adjuster)], lambda: False)
            state.release()
            assert one.draft == growth.finish().draft
        ids += one.emitted


def test_nothing_is_drafted_that_could_not_be_emitted() -> None:
    rounds = list(speculator(0).rounds(Task((3, 1, 4), POLICIES["chain"], 9)))
    assert [len(one.draft.tree) for one in rounds] == [0, 5, 1]


def test_a_round_shows_the_rows_of_root_and_nodes_after_each_layer_asked_for() -> None:
    ids = [3, 1, 4, 1, 5, 9, 2, 6] * 3
    for one in speculator(1).rounds(Task(tuple(ids), POLICIES["tree"], 12), layers=(1, 2)):
        for node in range(ROOT, len(one.draft.tree)):
            path = [one.draft.tree.tokens[n] for n in one.draft.tree.path(node)]
            assert one.rows[1 + node].tobytes() == rows_of([*ids, *path])[-1].tobytes()
            for layer in (1, 2):
                assert one.looked[layer][1 + node].tobytes() == rows_of([*ids, *path], layer)[-1].tobytes()
        ids += one.emitted


def test_accepted_nodes_hold_what_was_emitted_and_the_text_ends_with_an_end_id() -> None:
    task = Task((3, 1, 4, 1, 5), POLICIES["tree"], 40)
    wanted = plain(task)
    end = wanted[20]
    models = speculator(0, frozenset([end]))
    rounds = list(models.rounds(task))
    assert emitted(rounds) == wanted[: wanted.index(end) + 1]
    for one in rounds:
        assert [one.draft.tree.tokens[node] for node in one.accepted] == list(one.emitted[: len(one.accepted)])
        assert one.draft.tree.is_path(one.accepted)
        assert len(one.emitted) - len(one.accepted) == (one is not rounds[-1] or end not in one.draft.tree.tokens)


def test_a_text_ends_where_the_context_does() -> None:
    prompt = tuple(i % TINY.vocab_size for i in range(150))
    for policy in POLICIES.values():
        found = emitted(list(speculator(1).rounds(Task(prompt, policy, 100))))
        assert found == plain(Task(prompt, policy, 11))


@lru_cache
def answerer(end_ids: frozenset[int] = frozenset()) -> Answerer:
    pack = MemoryPack(seed=0)
    model = Transformer(pack, threads=1, max_rows=AT_ONCE * STRETCH, max_context=160, kv_capacity_tokens=64 * PAGE)
    return Answerer(model, Head(pack, threads=1), missing=MISSING, end_ids=end_ids)


def known_answer(task: Task) -> Answer:
    [answer] = answerer().answer([Question(task.prompt, task.max_tokens, task.sampling, task.noise)])
    return answer


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_answers_side_by_side_are_each_what_plain_decoding_emits(temperature: float) -> None:
    prompts = [
        tuple(i * k % TINY.vocab_size for i in range(length)) for k, length in [(3, 1), (7, 16), (1, 70), (9, 33)]
    ]
    asked = [Question(p, 4 + 5 * n, Sampling(temperature), NoiseKey(n)) for n, p in enumerate(prompts)]
    for question, answer in zip(asked, answerer().answer(asked), strict=True):
        wanted = plain(Task(question.prompt, PLAIN, question.max_tokens, question.sampling, question.noise))
        assert list(answer.tokens) == wanted
        assert answer.rows.tobytes() == rows_of([*question.prompt, *wanted[:-1]]).tobytes()
        said = answer.said()
        assert said.tokens.tolist() == [*question.prompt, *wanted[:-1]]
        assert np.flatnonzero(said.origins_after == ANSWERED)[0] == len(question.prompt) - 1


def test_an_answer_ends_with_an_end_id_or_where_the_context_does() -> None:
    wanted = plain(Task((3, 1, 4, 1, 5), PLAIN, 20))
    [answer] = answerer(frozenset([wanted[9]])).answer([Question((3, 1, 4, 1, 5), 20)])
    assert list(answer.tokens) == wanted[: wanted.index(wanted[9]) + 1]
    long = tuple(i % TINY.vocab_size for i in range(150))
    [answer] = answerer().answer([Question(long, 100)])
    assert list(answer.tokens) == emitted(list(speculator(1).rounds(Task(long, PLAIN, 100))))


@pytest.mark.parametrize("draft_seed", [0, 1, FED])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_a_replay_is_the_speculation_that_would_have_been(
    policy: DraftPolicy, temperature: float, draft_seed: int
) -> None:
    models = speculator(draft_seed)
    for length, prompt in ((1, (3,)), (2, (5, 7, 5)), (30, (3, 1, 4, 1, 5, 9, 2, 6) * 9)):
        task = Task(prompt, policy, length, Sampling(temperature), NoiseKey(3))
        _, *rounds = models.rounds(task)
        wanted = [ReplayedRound(one.draft, one.accepted, one.emitted) for one in rounds]
        assert list(replay(known_answer(task), policy, models.draft)) == wanted
