"""Drafting control against its rules stated anew: not as tables that change, but as what all events so far make of
them."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.policies.edc import COUNTERS, Edc, EdcTables

MAX_ENTROPY = 4.0
entropies = st.one_of(st.floats(0, 2 * MAX_ENTROPY), st.sampled_from([i * MAX_ENTROPY / 8 for i in range(10)]))
steps = st.lists(
    st.tuples(st.sampled_from(["draft", "draft", "accept", "reject", "drop", "foreseen"]), entropies), max_size=60
)


def interval(entropy: float) -> int:
    return min(7, int(Fraction(entropy) / (Fraction(MAX_ENTROPY) / 8)))


@dataclass
class Story:
    """Everything that happened to a session."""

    kept: list[int] = field(default_factory=list)  # intervals of batches accepted in full
    kept_at_drop: list[int] = field(default_factory=list)
    since_drop: list[int] = field(default_factory=list)  # intervals of batches drafted since
    ahead: int = 0
    waiting: list[tuple[int, float]] = field(default_factory=list)  # index and entropy of unverified batches

    def newest_first(self) -> list[int]:
        return [*(self.kept_at_drop + self.since_drop)[::-1], *[0] * 8][:8]

    def index(self) -> int:
        history = self.newest_first()
        older, newer = int(Fraction(sum(history[4:]), 4)), int(Fraction(sum(history[:4]), 4))
        return int(f"{older:03b}{newer:03b}{self.ahead:03b}", 2)

    def drop(self, but: int = 0) -> None:
        """All that waits for its verdict, but so many of the oldest."""
        self.waiting = self.waiting[:but]
        self.kept_at_drop, self.since_drop, self.ahead = list(self.kept), [], len(self.waiting)


def counter(verdicts: list[bool]) -> int:
    value = 2
    for accepted in verdicts:
        value = sorted((0, value + (1 if accepted else -1), 3))[1]
    return value


class Restated:
    """Sessions that share a table of verdicts, by the index that foretold them."""

    def __init__(self) -> None:
        self.verdicts: dict[int, list[bool]] = {}

    def step(self, story: Story, edc: Edc, what: str, entropy: float) -> None:
        if what == "draft":
            story.since_drop.append(interval(entropy))
            story.ahead = min(7, story.ahead + 1)
            story.waiting.append((story.index(), entropy))
            assert edc.drafted(entropy) == story.index()
        elif what == "drop":
            story.drop()
            edc.look_ahead_dropped()
        elif what == "foreseen" and story.waiting:  # how the oldest one's verdict will be
            story.drop(but=1)
            edc.look_ahead_dropped(but_the_first=True)
        elif what in ("accept", "reject") and story.waiting:
            index, of_batch = story.waiting.pop(0)
            self.verdicts.setdefault(index, []).append(what == "accept")
            edc.verified(index, of_batch, what == "accept")
            story.ahead = max(0, story.ahead - 1)
            if what == "accept":
                story.kept.append(interval(of_batch))

    def check(self, story: Story, edc: Edc) -> None:
        told, asked = edc.snapshot(), story.index()
        assert list(told.leht) == story.newest_first()
        assert list(told.lceht) == [*story.kept[::-1], *[0] * 8][:8]
        assert (told.ahead, told.index) == (story.ahead, asked)
        assert list(told.counters) == [counter(self.verdicts.get(i, [])) for i in range(COUNTERS)]
        likely = format(counter(self.verdicts.get(asked, [])), "02b")[0] == "1"
        assert edc.may_look_ahead() == told.may_look_ahead == (story.ahead == 0 or likely)


@given(steps)
def test_tables_are_what_the_rules_make_of_the_events(happened: list[tuple[str, float]]) -> None:
    story, edc, restated = Story(), Edc(EdcTables(), MAX_ENTROPY), Restated()
    for what, entropy in happened:
        restated.step(story, edc, what, entropy)
        restated.check(story, edc)


@given(st.lists(st.tuples(st.booleans(), steps), max_size=6))
def test_sessions_that_share_tables_learn_from_each_other_and_keep_their_own_history(
    turns: list[tuple[bool, list[tuple[str, float]]]],
) -> None:
    tables, restated = EdcTables(), Restated()
    stories, edcs = (Story(), Story()), (Edc(tables, MAX_ENTROPY), Edc(tables, MAX_ENTROPY))
    for which, happened in turns:
        for what, entropy in happened:
            restated.step(stories[which], edcs[which], what, entropy)
        for story, edc in zip(stories, edcs, strict=True):
            restated.check(story, edc)


@given(steps)
def test_foretold_counts_the_verdicts_that_the_counter_expected(happened: list[tuple[str, float]]) -> None:
    story, edc, restated, right, verified = Story(), Edc(EdcTables(), MAX_ENTROPY), Restated(), 0, 0
    for what, entropy in happened:
        if what in ("accept", "reject") and story.waiting:
            verified += 1
            expected = counter(restated.verdicts.get(story.waiting[0][0], [])) >= 2
            right += expected == (what == "accept")
        restated.step(story, edc, what, entropy)
    assert (edc.snapshot().verified, edc.snapshot().foretold) == (verified, right)


@pytest.mark.parametrize("max_entropy", [0.0, -1.0, float("nan"), float("inf")])
def test_a_bound_that_is_no_positive_number_is_refused(max_entropy: float) -> None:
    with pytest.raises(ValueError, match=r"max_entropy = .*, must be positive"):
        Edc(EdcTables(), max_entropy)


@pytest.mark.parametrize("entropy", [-0.1, float("nan"), float("inf")])
def test_an_entropy_that_is_none_is_refused_and_changes_nothing(entropy: float) -> None:
    edc = Edc(EdcTables(), MAX_ENTROPY)
    before = edc.snapshot()
    with pytest.raises(ValueError, match=r"mean_entropy = .*, must not be negative"):
        edc.drafted(entropy)
    assert edc.snapshot() == before
