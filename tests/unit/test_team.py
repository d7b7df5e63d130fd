"""Teams of threads: every share runs once, and failures reach the caller."""

from __future__ import annotations

import threading

import pytest

from hetspec.model.team import Team


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_a_job_runs_once_on_every_thread_of_the_team_at_the_same_time(threads: int) -> None:
    team = Team(threads)
    together = threading.Barrier(threads, timeout=10)
    for _ in range(3):
        seen: list[tuple[int, int]] = []

        def job(index: int, seen: list[tuple[int, int]] = seen) -> None:
            together.wait()
            seen.append((index, threading.get_ident()))

        team.run(job)
        assert sorted(index for index, _ in seen) == list(range(threads))
        assert len({thread for _, thread in seen}) == threads
        assert (0, threading.get_ident()) in seen
    team.close()


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_a_failure_is_raised_after_all_have_finished_and_the_next_run_is_sound(failing: int) -> None:
    team = Team(3)
    finished: list[int] = []

    def fails(index: int) -> None:
        if index == failing:
            raise KeyError(index)
        finished.append(index)

    for _ in range(2):
        finished.clear()
        with pytest.raises(KeyError, match=str(failing)):
            team.run(fails)
        assert len(finished) == 2
    team.run(finished.append)
    assert sorted(finished[2:]) == [0, 1, 2]
    team.close()


def test_close_ends_the_threads() -> None:
    before = set(threading.enumerate())
    team = Team(4)
    workers = set(threading.enumerate()) - before
    assert len(workers) == 3
    team.close()
    for worker in workers:
        worker.join(10)
    assert not any(worker.is_alive() for worker in workers)


def test_a_team_has_at_least_one_thread() -> None:
    with pytest.raises(ValueError, match="threads = 0, must be at least 1"):
        Team(0)
