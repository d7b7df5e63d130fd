"""A study that was ended goes on where it was, and asks again only for what has changed."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from hetspec.hardware.cost_as import parse_cost_as
from hetspec.hardware.profile import Described, load_profile
from hetspec.model.checkpoint import open_checkpoint
from laboratory.ahasd_policies import Changed
from laboratory.crew import Found, Member, Work, study
from laboratory.errors import StudyError
from laboratory.policy import Policy
from laboratory.record import About, Answer, Record, write_record
from laboratory.setup import Setup
from laboratory.stated import Acceptance
from laboratory.study import Pair
from orchestrator.policies.mode import Mode, Part
from tests.equivalence.agreeing_draft import make_agreeing_draft, make_forgetful_target

PLACES = (0, 1, 2)
SLOW = Changed((("handover.latency", "100 us"),))
CHAIN = Policy("chain", Mode.CHAIN, 3, 3)
POLICIES = (
    CHAIN,
    Policy("shared", Mode.AHASD, 5, 5, frozenset({Part.TVC}), shares_edc=True),
    Policy("plain", Mode.PLAIN, hardware=SLOW),
)


@pytest.fixture(scope="module")
def setup(cache_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Setup:
    """Answers need no target here: a stated draft is asked."""
    folder = tmp_path_factory.mktemp("kept")
    target = make_forgetful_target(folder / "target")
    draft = make_agreeing_draft(folder / "draft", target, head_vocab_size=330)
    model = open_checkpoint(target).config
    about = About("tiny", "0" * 32, "int8", model.to_json(), [0], 20, 0.0, 0, ["talk"] * len(PLACES))
    answers = [Answer(tuple(range(30, 40 + place)), tuple(range(60, 80)), "talk") for place in PLACES]
    write_record(folder / "a.npz", Record(about, tuple(answers)))
    return Setup(folder / "a.npz", target, draft, cache_dir, Acceptance((0.7,)))


def work_of(setup: Setup, *policies: Policy, kept: Path | None = None) -> Work:
    profile = load_profile("npu-lpddr5-pim")
    assert isinstance(profile, Described)
    pair = Pair(profile, parse_cost_as("llama3.2-3b:int8+llama3.2-1b:int8"))
    return Work(setup, (pair,), policies, PLACES, kept=kept)


def answer(work: Work, place: int, fingerprint: str) -> Found:
    with closing(Member(work, fingerprint)) as member:
        return member.answer(place)


def whole(work: Work, fingerprint: str) -> list[Found]:
    with closing(Member(work, fingerprint)) as member:
        learned = member.answer_in_order()
        return [member.answer(place) | more for place, more in zip(PLACES, learned, strict=True)]


def files(folder: Path) -> Mapping[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*.json")}


def gone(setup: Setup) -> Setup:
    """Of which nothing can be asked any more."""
    return replace(setup, record=setup.record.with_name("gone.npz"))


def test_an_ended_study_goes_on_and_comes_to_what_it_comes_to_at_once(setup: Setup, tmp_path: Path) -> None:
    fingerprint = setup.fingerprint()
    at_once = whole(work_of(setup, *POLICIES), fingerprint)
    answer(work_of(setup, *POLICIES, kept=tmp_path), PLACES[1], fingerprint)
    first = files(tmp_path)
    assert whole(work_of(setup, *POLICIES, kept=tmp_path), fingerprint) == at_once
    assert first.items() <= files(tmp_path).items()
    assert whole(work_of(gone(setup), *POLICIES, kept=tmp_path), fingerprint) == at_once


def test_only_a_policy_that_asks_for_something_else_is_asked_again(setup: Setup, tmp_path: Path) -> None:
    fingerprint = setup.fingerprint()
    known = answer(work_of(setup, *POLICIES, kept=tmp_path), 0, fingerprint)
    renamed = [replace(policy, name=f"my {policy.name}") for policy in POLICIES]
    assert answer(work_of(gone(setup), *renamed, kept=tmp_path), 0, fingerprint) == known
    changes = (replace(CHAIN, max_nodes=2), replace(CHAIN, hardware=SLOW), replace(CHAIN, mode=Mode.TREE))
    for changed in changes:
        with pytest.raises(StudyError, match=r"gone\.npz"):
            answer(work_of(gone(setup), changed, kept=tmp_path), 0, fingerprint)
    more = answer(work_of(setup, CHAIN, changes[0], kept=tmp_path), 0, fingerprint)
    assert known.items() < more.items()
    assert len(more) == len(known) + 1


def test_what_another_draft_came_to_is_not_taken_for_this_one(setup: Setup, tmp_path: Path) -> None:
    other = replace(setup, acceptance=Acceptance((0.8,)))
    assert other.fingerprint() != setup.fingerprint()
    answer(work_of(setup, CHAIN, kept=tmp_path), 0, setup.fingerprint())
    with pytest.raises(StudyError, match=r"gone\.npz"):
        answer(work_of(gone(other), CHAIN, kept=tmp_path), 0, other.fingerprint())


def test_a_damaged_file_is_refused_by_name(setup: Setup, tmp_path: Path) -> None:
    work = work_of(setup, CHAIN, kept=tmp_path)
    answer(work, 0, setup.fingerprint())
    (path,) = files(tmp_path)
    path.write_text(path.read_text().replace('"rounds": ', '"rounds": "many", "were": '))
    with pytest.raises(StudyError, match=r"00000\.json: damaged, remove it"):
        answer(work, 0, setup.fingerprint())


def test_every_run_gets_its_own_outcomes_in_the_order_of_places(setup: Setup, tmp_path: Path) -> None:
    told = study(work_of(setup, *POLICIES, kept=tmp_path), 1, lambda: None)
    found = whole(work_of(gone(setup), *POLICIES, kept=tmp_path), setup.fingerprint())
    in_order = [list(one.values()) for one in found]  # those that answer in order come last
    assert [one.policy for one in told] == list(POLICIES)
    for one, at in zip(told, (0, 2, 1), strict=True):
        assert list(one.outcomes) == [outcomes[at] for outcomes in in_order]
