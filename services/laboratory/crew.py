"""A study in several processes, each of which takes answers as it is done with others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from laboratory.kept import Kept, key_of
from laboratory.outcome import Outcome
from laboratory.policy import Policy
from laboratory.setup import Setup
from laboratory.study import Pair, Run, Studied, Study

Found = dict[str, Outcome]  # by key, see `laboratory.kept`


@dataclass(frozen=True, slots=True)
class Work:
    """places: of the record's answers. kept: the folder of what was found out before; one study at a time uses it."""

    setup: Setup
    pairs: tuple[Pair, ...]
    policies: tuple[Policy, ...]
    places: tuple[int, ...]
    excluded: frozenset[tuple[str, str]] = frozenset()  # of pairs and policies, by their names
    kept: Path | None = None

    @property
    def runs(self) -> list[Run]:
        runs = [(pair, policy) for pair in self.pairs for policy in self.policies]
        return [(pair, policy) for pair, policy in runs if (pair.name, policy.name) not in self.excluded]


def study(work: Work, jobs: int, on_answer: Callable[[], object]) -> list[Studied]:
    """Run by run. on_answer: called when all policies, but for those that answer in order, are through with one.
    Raises StudyError."""
    fingerprint = work.setup.fingerprint()
    with ProcessPoolExecutor(jobs, get_context("spawn"), _begin, (work, fingerprint)) as pool:
        in_order = pool.submit(_answer_in_order)
        answers = [pool.submit(_answer, place) for place in work.places]
        try:
            for done in as_completed(answers):
                done.result()
                on_answer()
            found = [one.result() | learned for one, learned in zip(answers, in_order.result(), strict=True)]
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return [
        Studied(run[0], run[1], tuple(one[_key(fingerprint, run, work.places[:i])] for i, one in enumerate(found)))
        for run in work.runs
    ]


class Member:
    """Of the crew. Opens record and draft once it is asked for what is not kept."""

    def __init__(self, work: Work, fingerprint: str) -> None:
        self._work = work
        self._fingerprint = fingerprint
        self._kept = Kept(work.kept)
        self._kept_in_order = Kept(work.kept and work.kept / "in_order")
        self._study: Study | None = None

    def answer(self, place: int) -> Found:
        """By all runs but those that answer in order."""
        runs = self._keyed(in_order=False)
        known = self._kept.outcomes(place)
        missing = {key: run for key, run in runs.items() if key not in known}
        return known | self._ask(place, missing, self._kept)

    def answer_in_order(self) -> list[Found]:
        """By the others. All again where one is missing, for what it had learned until then is gone."""
        places = self._work.places
        runs = [self._keyed(in_order=True, before=places[:i]) for i in range(len(places))]
        known = [self._kept_in_order.outcomes(place) for place in places]
        if all(wanted.keys() <= one.keys() for wanted, one in zip(runs, known, strict=True)):
            return known
        return [self._ask(place, wanted, self._kept_in_order) for place, wanted in zip(places, runs, strict=True)]

    def close(self) -> None:
        if self._study is not None:
            self._study.close()

    def _keyed(self, in_order: bool, before: tuple[int, ...] = ()) -> dict[str, Run]:
        runs = [run for run in self._work.runs if run[1].shares_edc is in_order]
        return {_key(self._fingerprint, run, before): run for run in runs}

    def _ask(self, place: int, runs: Mapping[str, Run], kept: Kept) -> Found:
        if not runs:
            return {}
        if self._study is None:
            self._study = Study(*self._work.setup.open(), self._work.runs)
        found = dict(zip(runs, self._study.answer(place, list(runs.values())), strict=True))
        kept.keep(place, found)
        return found


def _key(fingerprint: str, run: Run, before: tuple[int, ...]) -> str:
    return key_of(fingerprint, run, before if run[1].shares_edc else ())


_MEMBER: list[Member] = []  # this process'


def _begin(work: Work, fingerprint: str) -> None:
    _MEMBER.append(Member(work, fingerprint))


def _answer(place: int) -> Found:
    return _MEMBER[0].answer(place)


def _answer_in_order() -> list[Found]:
    return _MEMBER[0].answer_in_order()
