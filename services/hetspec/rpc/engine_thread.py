"""The one thread on which a unit computes."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import TypeVar

from hetspec.rpc.logs import log_event

T = TypeVar("T")
Job = Callable[[], None]


class EngineThread:
    """Runs jobs one after the other, in order; urgent ones before the rest. A job must not raise."""

    def __init__(self, name: str) -> None:
        self._jobs: deque[Job | None] = deque()
        self._tokens: SimpleQueue[None] = SimpleQueue()  # one a job: its get() is a cheap blocking wait
        self._thread = threading.Thread(target=self._run, name=f"{name}-engine", daemon=True)
        self._thread.start()

    def submit(self, job: Job) -> None:
        self._jobs.append(job)
        self._tokens.put(None)

    def submit_urgent(self, job: Job) -> None:
        self._jobs.appendleft(job)
        self._tokens.put(None)

    def call(self, function: Callable[[], T], *, urgent: bool = False) -> Future[T]:
        """Runs `function` in its turn, or next; its result or exception goes into the future."""
        future: Future[T] = Future()

        def job() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(function())
                except BaseException as error:
                    future.set_exception(error)

        (self.submit_urgent if urgent else self.submit)(job)
        return future

    def close(self) -> None:
        """Ends the thread after the jobs that wait."""
        self._jobs.append(None)
        self._tokens.put(None)
        self._thread.join()

    def _run(self) -> None:
        while True:
            self._tokens.get()
            job = self._jobs.popleft()
            if job is None:
                return
            try:
                job()
            except Exception as error:  # the thread outlives any job; jobs report their own failures
                log_event("engine job failed", error=repr(error))
