"""A study in several processes, each of which takes answers as it is done with others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context

from laboratory.outcome import Outcome
from laboratory.policy import Policy
from laboratory.setup import Setup
from laboratory.study import Pair, Run, Studied, Study

_STUDY: list[Study] = []  # this process'


@dataclass(frozen=True, slots=True)
class Work:
    setup: Setup
    pairs: tuple[Pair, ...]
    policies: tuple[Policy, ...]
    excluded: frozenset[tuple[str, str]] = frozenset()  # of pairs and policies, by their names


def study(work: Work, answers: int, jobs: int, on_answer: Callable[[], object]) -> list[Studied]:
    """answers: of the record. on_answer: called when all policies are through with one. Raises StudyError."""
    found: dict[int, Sequence[Outcome]] = {}
    with ProcessPoolExecutor(jobs, get_context("spawn"), _begin, (work,)) as pool:
        places = {pool.submit(_answer, place): place for place in range(answers)}
        try:
            for done in as_completed(places):
                found[places[done]] = done.result()
                on_answer()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    by_run = zip(*(found[place] for place in range(answers)), strict=True)
    return [Studied(pair, policy, outcomes) for (pair, policy), outcomes in zip(work_runs(work), by_run, strict=True)]


def work_runs(work: Work) -> list[Run]:
    runs = [(pair, policy) for pair in work.pairs for policy in work.policies]
    return [(pair, policy) for pair, policy in runs if (pair.name, policy.name) not in work.excluded]


def _begin(work: Work) -> None:
    record, draft = work.setup.open()
    _STUDY.append(Study(record, draft, work_runs(work)))


def _answer(place: int) -> list[Outcome]:
    return _STUDY[0].answer(place)
