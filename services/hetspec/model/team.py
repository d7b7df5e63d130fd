"""A fixed team of threads that run one native call together."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

Job = Callable[[int], object]


class Team:
    """`run` calls a job once on every thread, the caller's included; between runs the others sleep in a queue."""

    def __init__(self, threads: int) -> None:
        if threads < 1:
            raise ValueError(f"threads = {threads}, must be at least 1")
        self.threads = threads
        self._jobs: list[SimpleQueue[Job | None]] = [SimpleQueue() for _ in range(threads - 1)]
        self._done: SimpleQueue[BaseException | None] = SimpleQueue()
        for index, jobs in enumerate(self._jobs, start=1):
            threading.Thread(target=self._work, args=(index, jobs), name=f"team-{index}", daemon=True).start()

    def run(self, job: Job) -> None:
        """Returns when all have finished; raises what the caller's share, else the first to fail, raised."""
        for jobs in self._jobs:
            jobs.put(job)
        try:
            job(0)
        finally:
            failures = [failure for failure in [self._done.get() for _ in self._jobs] if failure]
        if failures:
            raise failures[0]

    def close(self) -> None:
        for jobs in self._jobs:
            jobs.put(None)

    def _work(self, index: int, jobs: SimpleQueue[Job | None]) -> None:
        while job := jobs.get():
            try:
                job(index)
            except BaseException as failure:  # handed to the caller of `run`
                self._done.put(failure)
            else:
                self._done.put(None)
