"""What a session learns of its draft: outcomes, chances, and when the draft model rests."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hetspec.decoding.tree import ROOT, TokenTree
from hetspec.drafting.calibration import CalibrationMap
from hetspec.drafting.costs import CostCurve, DraftCosts
from hetspec.rpc.messages import Draft, DraftPolicy, Walk
from hetspec.v1.drafter_pb2 import DRAFT_SOURCE_GRAMMAR, DRAFT_SOURCE_LOOKUP, DRAFT_SOURCE_MODEL
from orchestrator.policies.calibration import Calibration, Outcome, outcomes
from orchestrator.policies.draft_pause import DraftPause
from orchestrator.policies.lever import Lever
from orchestrator.policies.mode import Part

LOOKUP, MODEL, GRAMMAR = int(DRAFT_SOURCE_LOOKUP), int(DRAFT_SOURCE_MODEL), int(DRAFT_SOURCE_GRAMMAR)
COSTS = DraftCosts(10, CostCurve(((1, 100), (9, 100))), CostCurve(((1, 5), (8, 5))))
POLICY = DraftPolicy(8, 4, 4, (LOOKUP, MODEL), costs=COSTS)


def test_a_nodes_outcome_is_known_where_its_parent_was_accepted() -> None:
    #       5 .9       6 .1
    #    7 .5  8 .3     9
    tree = TokenTree((5, 6, 7, 8, 9), (ROOT, ROOT, 0, 0, 1))
    draft = Draft(tree, (0.9, 0.1, 0.5, 0.3, 0.2), (MODEL,) * 5)
    assert outcomes(draft, Walk((5, 4), (0,))) == [
        Outcome(0, 1, True), Outcome(1, 1, False), Outcome(2, 2, False), Outcome(3, 2, False),
    ]  # fmt: skip
    assert outcomes(draft, Walk((3,), ())) == [Outcome(0, 1, False), Outcome(1, 1, False)]
    assert outcomes(draft, Walk((5,), (0,))) == [Outcome(0, 1, True), Outcome(1, 1, False)]  # it ended there


def test_a_node_that_was_dropped_from_the_pass_was_right_where_it_held_the_token() -> None:
    draft = Draft(TokenTree((5,), (ROOT,)), (0.9,), (MODEL,))
    assert outcomes(draft, Walk((5,), ())) == [Outcome(0, 1, True)]


def rounds(believed: float, true: float, count: int, source: int = MODEL) -> list[tuple[Draft, Walk]]:
    """Of one node each, that comes true as often as said."""
    chance = random.Random(7)
    draft = Draft(TokenTree((1,), (ROOT,)), (believed,), (source,))
    return [(draft, Walk((1, 2), (0,)) if chance.random() < true else Walk((2,), ())) for _ in range(count)]


@settings(max_examples=15)
@given(st.sampled_from([0.3, 0.6, 0.95]), st.floats(0.1, 0.9))
def test_chances_become_what_comes_true(believed: float, true: float) -> None:
    calibration = Calibration()
    for draft, walk in rounds(believed, true, 2000):
        calibration.learn(draft, outcomes(draft, walk))
    assert calibration.map.chance(MODEL, 1, believed) == pytest.approx(true, abs=0.05)
    assert calibration.map.chance(MODEL, 4, believed) == pytest.approx(true, abs=0.05)  # nothing is known so deep
    assert calibration.map.chance(LOOKUP, 1, believed) == believed
    assert calibration.map.chance(GRAMMAR, 1, 1.0) == 1.0


def test_siblings_have_no_more_than_certainty_together() -> None:
    doubled = CalibrationMap((), ((MODEL, ((2.0,),)),))
    assert doubled.chances(1, [(MODEL, 0.2), (LOOKUP, 0.1)]) == [0.4, 0.1]
    assert doubled.chances(1, [(MODEL, 0.6), (LOOKUP, 0.4)]) == pytest.approx([1.0 / 1.4, 0.4 / 1.4])


def lever_after(told: list[tuple[Draft, Walk]], parts: frozenset[Part] = frozenset(Part)) -> Lever:
    lever = Lever(parts)
    for draft, walk in told:
        lever.begin_round(draft, lever.refine(POLICY))
        lever.learn(walk)
    return lever


def test_calibration_brings_an_over_confident_drafts_error_down_and_expectations_to_the_truth() -> None:
    told = rounds(0.9, 0.5, 600)
    report, believing = lever_after(told).report, lever_after(told, frozenset(Part) - {Part.CALIBRATION}).report
    emitted = sum(len(walk.tokens) for _, walk in told)
    assert report.emitted_tokens == believing.emitted_tokens == emitted
    assert report.draft_error == believing.calibrated_error == pytest.approx(0.4, abs=0.05)
    assert report.calibrated_error < 0.1
    assert report.expected_tokens == pytest.approx(emitted, rel=0.05)
    assert believing.expected_tokens == pytest.approx(600 * 1.9)


def test_the_same_rounds_teach_the_same() -> None:
    told = rounds(0.9, 0.5, 40)
    assert lever_after(told).refine(POLICY) == lever_after(told).refine(POLICY)


def test_a_round_without_a_draft_teaches_nothing() -> None:
    lever = Lever(frozenset(Part))
    ((draft, walk),) = rounds(0.9, 0.5, 1)
    lever.begin_round(draft, lever.refine(POLICY))
    lever.begin_round(Draft(), None)
    lever.learn(walk)
    assert lever.report.rounds == 0


def asked_in(rounds: int, saved: float) -> list[bool]:
    pause, asked = DraftPause(), []
    for _ in range(rounds):
        asked.append(pause.may_draft())
        if asked[-1]:
            pause.drafted(tokens=1, cost=100.0 - saved, plain=100.0)
    return asked


@pytest.mark.parametrize("saved", [1.0, 0.0, -15.0])
def test_a_draft_model_that_pays_or_loses_less_than_chance_may_never_rests(saved: float) -> None:
    assert all(asked_in(300, saved))


def test_one_that_does_not_rests_twice_as_long_after_every_trial() -> None:
    """A round loses a token: 1 + .95 + ... + .95**4 is more than 4."""
    asked = asked_in(5 * 5 + 4 + 8 + 16 + 32 + 64, saved=-100.0)
    trials = "".join("x" if one else "." for one in asked).split(5 * "x")
    assert [len(rest) for rest in trials] == [0, 4, 8, 16, 32, 64]


def test_one_that_pays_again_is_trusted_again() -> None:
    """After a bad time and a good one, the next bad one begins with a short rest again."""
    pause, rests = DraftPause(), 0
    for number in range(300):
        if pause.may_draft():
            pause.drafted(tokens=1, cost=200.0 if number < 100 or number >= 280 else 50.0, plain=100.0)
        else:
            rests += number > 200
    assert rests == 4


def test_a_resting_draft_model_leaves_lookup_and_comes_back() -> None:
    costs = replace(COSTS, draft_step=CostCurve(((1, 500), (8, 500))))
    policy, lever = replace(POLICY, costs=costs), Lever(frozenset(Part))
    asked = []
    for _ in range(1 + 4 + 1 + 8 + 1):
        refined = lever.refine(policy)
        asked.append(refined.sources)
        spent = 500 if MODEL in refined.sources else 0
        lever.begin_round(Draft(TokenTree((1,), (ROOT,)), (0.5,), (MODEL,), spent), refined)
        lever.learn(Walk((2,), ()))
    asked_both, looked_up = [(LOOKUP, MODEL)], [(LOOKUP,)]
    assert asked == asked_both + 4 * looked_up + asked_both + 8 * looked_up + asked_both
    assert lever.report.rested == 12
