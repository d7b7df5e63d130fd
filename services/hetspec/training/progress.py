"""How far a long command is: a bar with its rate and the time left, or a line now and then where nobody watches."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

_LINE_EVERY_S = 30.0


class Bar:
    """One stage's. Rate and time left are of this run: what was there before it counts as done, not as fast."""

    def __init__(self, name: str, total: float, unit: str, done: float, console: Console, bars: Progress) -> None:
        self._name, self._total, self._unit = name, total, unit
        self._first, self._done, self._note = done, done, ""
        self._start = self._told = time.monotonic()
        self._console = console
        self._bars = bars
        self._task: TaskID = bars.add_task(name, total=total, told="")
        bars.update(self._task, completed=done)

    def advance(self, amount: float = 1.0, note: str = "") -> None:
        """note: what else to tell; the last one stays."""
        self._done += amount
        self._note = note or self._note
        rate = (self._done - self._first) / max(1e-9, time.monotonic() - self._start)
        told = f"{rate:,.1f} {self._unit}/s{'; ' if self._note else ''}{self._note}"
        self._bars.update(self._task, completed=self._done, told=told)
        if not self._console.is_terminal and time.monotonic() - self._told > _LINE_EVERY_S:
            self._told = time.monotonic()
            left_s = max(0.0, self._total - self._done) / max(1e-9, rate)
            share = self._done / max(1e-9, self._total)
            line = f"{self._name}: {share:.1%}, {told}, {left_s / 60:.0f} min left"
            self._console.print(line, highlight=False, soft_wrap=True)


class Stages:
    """A command's, one after another."""

    def __init__(self, console: Console) -> None:
        self.console = console

    @contextmanager
    def stage(self, name: str, total: float, unit: str, done: float = 0.0) -> Iterator[Bar]:
        """done: of `total`, what is there already."""
        columns = (
            *(TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:.0f}%")),
            *(TextColumn("{task.fields[told]}"), TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn()),
        )
        with Progress(*columns, console=self.console, disable=not self.console.is_terminal) as bars:
            yield Bar(name, total, unit, done, self.console, bars)
