"""What prompt lookup and a draft model say together, against the stated formula over a whole small vocabulary."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetspec.drafting.copies import COPIES, FOLLOWERS, RIGHT, Copies
from hetspec.drafting.lookup import MAX_MATCH, RUN_MATCH, NgramIndex
from hetspec.drafting.nodes import Candidate

LOOKUP, MODEL = 1, 2
VOCAB = 5
texts = st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=40)
paths = st.lists(st.integers(0, VOCAB - 1), max_size=4)


@st.composite
def proposals(draw: st.DrawFn) -> list[Candidate]:
    """Of some tokens, together no likelier than certain."""
    tokens = draw(st.lists(st.integers(0, VOCAB - 1), unique=True))
    shares = draw(st.lists(st.floats(0.01, 1), min_size=len(tokens), max_size=len(tokens)))
    scale = draw(st.floats(0.5, 1)) / max(1.0, sum(shares))
    return sorted(((t, share * scale) for t, share in zip(tokens, shares, strict=True)), key=lambda pair: -pair[1])


def copied(ids: list[int], path: list[int]) -> list[float]:
    """The share of each token of the vocabulary."""
    shares, rest, count = [0.0] * VOCAB, 1.0, 0
    for token, matched in NgramIndex(ids).followers(FOLLOWERS, path).items():
        shares[token] = rest * COPIES[matched] * (0.5 if count else 1.0)
        rest, count = rest - shares[token], count + 1
    return shares


@given(texts, paths, proposals())
def test_guesses_are_the_maximisers_of_the_mixture(ids: list[int], path: list[int], said: list[Candidate]) -> None:
    shares, own = copied(ids, path), dict(said)
    rest = 1 - sum(shares)
    told = {token: shares[token] + rest * own.get(token, 0.0) for token in range(VOCAB)}
    guesses = Copies(NgramIndex(ids)).join(said, path)
    assert {guess.token for guess in guesses} == {token for token in told if told[token] > 0}
    for guess in guesses:
        assert guess.probability == pytest.approx(told[guess.token])
        assert guess.source == (LOOKUP if shares[guess.token] > rest * own.get(guess.token, 0.0) else MODEL)
    ranked = [guess.probability for guess in guesses]
    assert ranked == sorted(ranked, reverse=True)
    assert sum(ranked) <= 1 + 1e-12


@given(texts, paths, proposals())
def test_where_nothing_is_looked_up_the_draft_model_has_its_way(
    ids: list[int], path: list[int], said: list[Candidate]
) -> None:
    for copies in (Copies(), Copies(NgramIndex(ids), allowed=lambda run: 0)):
        assert copies.runs(4, 4, path) == [[]] * len(copies.runs(4, 4, path))
        assert [(guess.token, guess.probability, guess.source) for guess in copies.join(said, path)] == [
            (token, probability, MODEL) for token, probability in said
        ]


def test_a_run_is_as_likely_as_its_match_is_long_and_ends_where_it_may_not_go_on() -> None:
    text = [1, 2, 3, 4, 1, 2]
    assert Copies(NgramIndex(text)).runs(1, 3) == [[(3, RIGHT[2]), (4, RIGHT[3]), (1, RIGHT[4])]]
    assert Copies(NgramIndex(text), allowed=lambda run: run.index(4)).runs(1, 3) == [[(3, RIGHT[2])]]


def test_longer_matches_are_trusted_more() -> None:
    for table in (COPIES, RIGHT):
        assert len(table) == MAX_MATCH + 1
        assert list(table) == sorted(table)
    assert RIGHT[RUN_MATCH] > 0.5 > COPIES[RUN_MATCH]
