"""Ending another thread's wait."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Cut:
    """Told once, from any thread; whoever waits under it stops waiting then."""

    def __init__(self) -> None:
        self._told = threading.Event()
        self._lock = threading.Lock()
        self._actions: list[Callable[[], object]] = []

    @property
    def told(self) -> bool:
        return self._told.is_set()

    def tell(self) -> None:
        with self._lock:
            self._told.set()
            actions, self._actions = self._actions, []
        for action in actions:
            action()

    def wait(self, seconds: float) -> None:
        """Sleeps so long, or until it is told."""
        self._told.wait(seconds)

    @contextmanager
    def ends(self, action: Callable[[], object]) -> Iterator[None]:
        """`action` ends what the block waits for, should it be told meanwhile; at once if it has been told already."""
        with self._lock:
            told = self._told.is_set()
            if not told:
                self._actions.append(action)
        if told:
            action()
        try:
            yield
        finally:
            with self._lock:
                if action in self._actions:
                    self._actions.remove(action)


NEVER = Cut()
"""Of whoever waits to the end: nobody tells it."""
