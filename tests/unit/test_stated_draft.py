"""A synthetic draft is right as often as stated, says how sure it is, and repeats."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laboratory.errors import StudyError
from laboratory.record import Answer, Record
from laboratory.stated import Acceptance, StatedProposals, tilt_of, tilted
from tests.unit.test_record_file import ABOUT

LENGTH = 4000
ANSWER = Answer((1,), tuple(np.random.default_rng(3).integers(0, 50, LENGTH).tolist()), "all")
RECORD = Record(ABOUT, (ANSWER, ANSWER))


@dataclass(frozen=True)
class Seen:
    """Along the answer, at one depth: the confidence in the first candidate, and the rank of the right token."""

    confidence: float
    rank: int | None


def seen(acceptance: Acceptance, depth: int, place: int = 0) -> list[Seen]:
    proposals = StatedProposals(RECORD, acceptance)
    proposals.turn_to(place)
    found = []
    for length in range(1, LENGTH + 1 - depth):
        end = length + depth - 1
        (proposal,) = proposals.propose(length, [ANSWER.ids[length:end]])
        tokens = [token for token, _ in proposal.candidates]
        right = ANSWER.ids[end]
        found.append(Seen(proposal.candidates[0][1], tokens.index(right) if right in tokens else None))
    return found


@pytest.mark.parametrize(("stated", "depth", "expected"), [("0.7", 1, 0.7), ("0.7", 4, 0.7), ("0.9,0.6,0.3", 2, 0.6)])
def test_the_first_candidate_is_right_as_often_as_stated(stated: str, depth: int, expected: float) -> None:
    """Within 4 standard errors."""
    share = fmean(one.rank == 0 for one in seen(Acceptance.parse(stated), depth))
    assert share == pytest.approx(expected, abs=4 * (expected * (1 - expected) / LENGTH) ** 0.5)


def test_a_candidates_confidence_is_how_often_it_is_right() -> None:
    found = seen(Acceptance.parse("0.6"), 1)
    for low, high in pairwise([0.0, 0.3, 0.5, 0.7, 0.9, 1.0]):
        sure = [one for one in found if low <= one.confidence < high]
        for rank in (0, 1):
            told = fmean(one.confidence * (1 - one.confidence) ** rank for one in sure)
            assert fmean(one.rank == rank for one in sure) == pytest.approx(told, abs=4 * (0.25 / len(sure)) ** 0.5)


def test_candidates_are_distinct_best_first_and_no_more_than_certain() -> None:
    proposals = StatedProposals(RECORD, Acceptance.parse("0.4"))
    for length in range(1, 200):
        for path in [(), (ANSWER.ids[length],), (49, 3)]:
            (proposal,) = proposals.propose(length, [path])
            tokens, chances = zip(*proposal.candidates, strict=True)
            assert len(set(tokens)) == len(tokens)
            assert list(chances) == sorted(chances, reverse=True)
            assert sum(chances) <= 1


def test_nothing_is_right_below_a_wrong_token_and_behind_the_end() -> None:
    wrong = ANSWER.ids[5] ^ 1
    proposals = StatedProposals(RECORD, Acceptance.parse("0.99"))
    below, behind = proposals.propose(5, [(wrong,)]) + proposals.propose(len(ANSWER.ids), [()])
    assert len(below.candidates) == len(behind.candidates) > 0


def test_it_repeats_whatever_is_asked_first_and_differs_by_seed_and_answer() -> None:
    stated = Acceptance((0.5,))
    forwards, backwards = StatedProposals(RECORD, stated), StatedProposals(RECORD, stated)
    lengths = list(range(1, 60))
    told = {length: forwards.propose(length, [()]) for length in lengths}
    assert told == {length: backwards.propose(length, [()]) for length in reversed(lengths)}
    assert seen(stated, 1) == seen(stated, 1)
    assert seen(stated, 1) != seen(stated, 1, place=1)
    assert seen(stated, 1) != seen(Acceptance((0.5,), seed=1), 1)


@given(st.floats(0.01, 0.99))
def test_the_densitys_mean_is_the_acceptance(mean: float) -> None:
    """By quadrature of its quantiles."""
    tilt = tilt_of(mean)
    assert fmean(tilted((i + 0.5) / 4096, tilt) for i in range(4096)) == pytest.approx(mean, abs=1e-3)


def test_a_chain_gives_what_geometric_sums_say() -> None:
    assert Acceptance((0.5,)).chain_length(5) == pytest.approx(2 - 0.5**5)
    assert Acceptance((0.8, 0.5)).chain_length(3) == pytest.approx(1 + 0.8 + 0.4 + 0.2)


@pytest.mark.parametrize("text", ["", " ", "x", "1.5", "nan", "0.5,0", "0.5;0.4"])
def test_an_impossible_acceptance_is_refused(text: str) -> None:
    with pytest.raises(StudyError, match=f"--accept {text!r}"):
        Acceptance.parse(text)
