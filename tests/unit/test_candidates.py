"""What a draft proposes, against the decoding rule itself; a part of a vocabulary against all of it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from hetspec.decoding.adjust import Adjuster
from hetspec.decoding.choose import perturbed
from hetspec.decoding.constraint import Constraint, DeadEnd, Grammar, GrammarKind, Past
from hetspec.decoding.filters import keep
from hetspec.decoding.noise import gumbel
from hetspec.decoding.sampling import NoiseKey, Sampling
from hetspec.drafting.candidates import Place, Proposer
from hetspec.drafting.nodes import Candidate

VOCAB = 300
NONE = np.array([], np.intp)
NOISE, FREE = NoiseKey(11), Constraint()
samplings = st.sampled_from(
    [
        Sampling(),
        Sampling(0.8),
        Sampling(2.0),
        Sampling(0.8, top_k=5),
        Sampling(1.0, top_p=0.7, min_p=0.01),
        Sampling(0.8, repetition_penalty=1.7, frequency_penalty=0.4),
        Sampling(presence_penalty=2.0, bias=((3, 4.0), (299, -2.0))),
    ]
)
logit_rows = st.integers(0, 2**32 - 1).map(lambda seed: np.random.default_rng(seed).normal(0, 4, (5, VOCAB)))
id_sets = st.sets(st.integers(0, VOCAB - 1), min_size=9, max_size=VOCAB).map(lambda ids: np.array(sorted(ids), np.intp))


def place(
    sampling: Sampling, position: int, path: Sequence[int] = (), constraint: Constraint = FREE, count: int = 4
) -> Place:
    past = Past(tuple(range(0, 60, 3)), (5, 6, 6))
    return Place(sampling, NOISE, Adjuster(sampling, constraint, past), position, path, count)


def places(sampling: Sampling, constraint: Constraint = FREE) -> list[Place]:
    return [place(sampling, 30 + i, [7] * i, constraint) for i in range(5)]


def proposed(logits: NDArray[np.float64], ids: NDArray[np.intp] | None, asked: list[Place]) -> list[list[Candidate]]:
    return [list(one.candidates) for one in Proposer(VOCAB, ids, NONE).propose(logits.astype(np.float32), asked)]


def softmax(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.exp(scores - logsumexp(scores))


def logsumexp(scores: NDArray[np.float64]) -> float:
    return float(np.log(np.exp(scores - scores.max()).sum()) + scores.max())


def assert_same(found: Sequence[Sequence[Candidate]], wanted: Sequence[Sequence[Candidate]]) -> None:
    assert [[token for token, _ in row] for row in found] == [[token for token, _ in row] for row in wanted]
    for mine, theirs in zip(found, wanted, strict=True):
        assert [chance for _, chance in mine] == pytest.approx([chance for _, chance in theirs], rel=1e-4)


def by_the_rule(logits: NDArray[np.float32], at: Place) -> list[Candidate]:
    """Shares of the likeliest, or those of exp(log q + T g) of the best eight."""
    at.adjuster.adjust(logits, at.path, at.position)
    best = perturbed(logits, at.sampling, at.noise, at.position, 8)
    chances = best.probabilities
    if at.sampling.temperature:
        chances = softmax(best.scores * at.sampling.temperature)
    return list(zip(best.ids.tolist(), np.maximum(chances, 1e-6).tolist(), strict=True))[: at.count]


@given(logit_rows, samplings)
def test_proposals_are_the_decoding_rules_best(logits: NDArray[np.float64], sampling: Sampling) -> None:
    asked = places(sampling)
    wanted = [by_the_rule(row.astype(np.float32), at) for row, at in zip(logits, asked, strict=True)]
    assert_same(proposed(logits, None, asked), wanted)


@pytest.mark.parametrize("temperature", [0.5, 0.8, 1.7])
def test_a_chance_is_how_often_targets_choose_the_token_whose_logits_are_the_drafts_but_for_gumbel_noise(
    temperature: float,
) -> None:
    random = np.random.default_rng(3)
    logits = random.normal(0, 1, 6)
    at = place(Sampling(temperature), 30, count=6)
    targets = logits + random.gumbel(size=(40_000, 6))
    chosen = (targets + temperature * gumbel(np.arange(6), NOISE, 30)).argmax(axis=1)
    (found,) = Proposer(6, None, NONE).propose(logits[None].astype(np.float32), [at])
    assert len(found.candidates) == 6
    for token, chance in found.candidates:
        assert chance == pytest.approx(np.mean(chosen == token), abs=0.01)


@given(logit_rows, id_sets, samplings, st.booleans())
def test_a_part_of_the_vocabulary_proposes_as_all_of_it_with_the_others_forbidden(
    logits: NDArray[np.float64], ids: NDArray[np.intp], sampling: Sampling, withholds: bool
) -> None:
    constraint = Constraint(tuple(ids[:3].tolist()), 33) if withholds else FREE
    asked = places(sampling, constraint)
    whole = np.full(logits.shape, -np.inf)
    whole[:, ids] = logits[:, ids]
    assert_same(proposed(logits[:, ids], ids, asked), proposed(whole, None, asked))


@given(logit_rows, st.one_of(st.none(), id_sets), samplings)
def test_the_entropy_is_that_of_the_distribution_that_the_noise_is_added_to(
    logits: NDArray[np.float64], ids: NDArray[np.intp] | None, sampling: Sampling
) -> None:
    asked, part = places(sampling), logits if ids is None else logits[:, ids]
    barred = np.arange(VOCAB) if ids is None else ids
    found = Proposer(VOCAB, ids, barred[:1]).propose(part.astype(np.float32), asked)
    for one, row, at in zip(found, part.astype(np.float32), asked, strict=True):
        whole = np.full(VOCAB, -np.inf, np.float32)
        whole[barred] = row
        whole[barred[0]] = -np.inf
        at.adjuster.adjust(whole, at.path, at.position)
        scores = whole.astype(np.float64) / (sampling.temperature or 1)
        if sampling.temperature and (kept := keep(scores - scores.max(), sampling)) is not None:
            scores = scores[kept]
        shares = softmax(scores)
        assert one.entropy == pytest.approx(-sum(p * np.log(p) for p in shares if p > 0), rel=1e-4, abs=1e-5)


@given(st.integers(1, VOCAB), st.sampled_from([1e-300, 0.0, 0.3, 5.0]))
def test_the_entropy_of_equal_chances_is_the_logarithm_of_their_number(count: int, temperature: float) -> None:
    logits = np.full((1, VOCAB), -np.inf, np.float32)
    logits[0, :count] = 3.0
    (found,) = Proposer(VOCAB, None, NONE).propose(logits, [place(Sampling(temperature), 0)])
    assert found.entropy == pytest.approx(np.log(count), rel=1e-5, abs=1e-6)


@given(logit_rows)
def test_rows_of_different_requests_do_not_touch_each_other(logits: NDArray[np.float64]) -> None:
    asked = [
        place(Sampling(), 3),
        place(Sampling(0.8), 9),
        place(Sampling(0.8, top_k=3), 9, count=2),
        place(Sampling(frequency_penalty=1.0), 4, [6]),
        place(Sampling(0.8), 2, count=20),
    ]
    alone = [proposed(logits[i : i + 1], None, [at])[0] for i, at in enumerate(asked)]
    assert_same(proposed(logits, None, asked), alone)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_barred_and_forbidden_ids_are_not_proposed_however_few_are_left(temperature: float) -> None:
    logits = np.full((1, VOCAB), -np.inf)
    logits[0, [2, 40, 41, 299]] = 1.0, 5.0, 4.0, 3.0
    proposer = Proposer(VOCAB, None, np.array([40]))
    (found,) = proposer.propose(logits.astype(np.float32), [place(Sampling(temperature), 0, count=8)])
    assert sorted(token for token, _ in found.candidates) == [2, 41, 299]
    assert sum(chance for _, chance in found.candidates) == pytest.approx(1)


class OneWord:
    """A grammar that allows one id behind an empty path, and nothing behind another."""

    def __init__(self, token: int) -> None:
        self._token = token

    def allow(self, logits: NDArray[np.float32], path: Sequence[int]) -> None:
        assert len(logits) == VOCAB
        if path:
            raise DeadEnd("no more")
        kept = logits[self._token]
        logits[:] = -np.inf
        logits[self._token] = kept


def test_a_grammar_sees_the_whole_vocabulary_and_may_leave_nothing() -> None:
    constraint = Constraint(grammar=Grammar(GrammarKind.REGEX, "x"))
    ids = np.arange(0, VOCAB, 2)
    logits = np.random.default_rng(0).normal(0, 1, (1, len(ids)))

    def found(token: int, path: Sequence[int]) -> list[Candidate]:
        adjuster = Adjuster(Sampling(), constraint, Past(), OneWord(token))
        return proposed(logits, ids, [Place(Sampling(), NOISE, adjuster, 0, path, 4)])[0]

    assert found(8, []) == [(8, 1.0)]
    assert found(9, []) == found(8, [8]) == []
