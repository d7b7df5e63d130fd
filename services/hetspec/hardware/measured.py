"""Times that were measured on a machine, and what lies between them. Outside of what was measured: an error."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from fractions import Fraction
from typing import Annotated

from pydantic import Field, model_validator

from hetspec.hardware.quantity import Date, Strict, Text

_MOST_MS = 1e6
Axis = Annotated[list[int], Field(min_length=1)]


class RowsTable(Strict):
    """Milliseconds by rows, straight lines between them."""

    rows: Axis
    ms: list[float]

    @model_validator(mode="after")
    def _check(self) -> RowsTable:
        _check_axis("rows", self.rows)
        _check_times(self.ms, len(self.rows))
        return self

    def ns(self, rows: int) -> int:
        low, high, share = _place("rows", self.rows, rows)
        return _between(_ns(self.ms[low]), _ns(self.ms[high]), share)


class KvTable(Strict):
    """Milliseconds by rows and by the positions that each of them attends to: ms[rows][kv], bilinear between them."""

    rows: Axis
    kv: Axis
    ms: list[list[float]]

    @model_validator(mode="after")
    def _check(self) -> KvTable:
        _check_axis("rows", self.rows)
        _check_axis("kv", self.kv)
        if len(self.ms) != len(self.rows):
            raise ValueError(f"ms has {len(self.ms)} lines, must have {len(self.rows)}, one for each of rows")
        for line in self.ms:
            _check_times(line, len(self.kv))
        return self

    def ns(self, rows: int, kv: int) -> int:
        low, high, share = _place("rows", self.rows, rows)
        left, right, part = _place("kv", self.kv, kv)
        few, many = (_between(_ns(self.ms[i][left]), _ns(self.ms[i][right]), part) for i in (low, high))
        return _between(few, many, share)


class Measured(Strict):
    """What `hetspec calibrate` writes.

    machine, threads, precision, date: on what, how, and when. target, draft: names of the models that were measured.
    verify: a pass of the target, drafted trees and chunks of prompts alike, all layers in memory.
    draft_read: a step that reads what was committed, and proposes what follows the last of it; with the first one goes
    what a draft costs whatever its size. draft_step: one of those that follow, whose rows are all proposed for.
    head: rows that go through a head together.
    layer_read_ms: of one layer that is not in memory. streamed_layers: how many of the layers are such, and are read
    under compute: none when it was measured.
    task_ms: what a task costs beside its work (messages, queue).
    """

    machine: Text
    threads: Annotated[int, Field(ge=1)]
    precision: Text
    date: Date
    target: Text
    draft: Text | None = None
    verify: KvTable
    draft_read: KvTable | None = None
    draft_step: KvTable | None = None
    head: RowsTable
    layer_read_ms: Annotated[float, Field(ge=0, le=_MOST_MS)] = 0.0
    streamed_layers: Annotated[int, Field(ge=0)] = 0
    task_ms: Annotated[float, Field(ge=0, le=_MOST_MS)] = 0.0

    @model_validator(mode="after")
    def _check_parts(self) -> Measured:
        if len({self.draft is None, self.draft_read is None, self.draft_step is None}) != 1:
            raise ValueError("draft, draft_read and draft_step must be given together or not at all")
        if self.streamed_layers and not self.layer_read_ms:
            raise ValueError("layer_read_ms must be given where streamed_layers is")
        return self

    @property
    def longest_kv(self) -> int:
        """Positions that a row may attend to."""
        tables = (self.verify, self.draft_read, self.draft_step)
        return min(table.kv[-1] for table in tables if table is not None)

    @property
    def layer_read_ns(self) -> int:
        return _ns(self.layer_read_ms)

    @property
    def task_ns(self) -> int:
        return _ns(self.task_ms)


def _check_axis(name: str, values: Sequence[int]) -> None:
    if list(values) != sorted(set(values)) or values[0] < 1:
        raise ValueError(f"{name} {list(values)}, must be positive and ascending")


def _check_times(ms: Sequence[float], count: int) -> None:
    if len(ms) != count or not all(0 < value <= _MOST_MS for value in ms):
        raise ValueError(f"ms {list(ms)}, must be {count} numbers above 0, at most {_MOST_MS:g}")


def _place(name: str, axis: Sequence[int], value: int) -> tuple[int, int, Fraction]:
    """Indices of the neighbours of `value` and how far it is from the first of them."""
    if not axis[0] <= value <= axis[-1]:
        raise ValueError(f"{name} = {value}, was measured from {axis[0]} to {axis[-1]}")
    high = bisect_left(axis, value)
    if axis[high] == value:
        return high, high, Fraction(0)
    low = high - 1
    return low, high, Fraction(value - axis[low], axis[high] - axis[low])


def _between(first: int, second: int, share: Fraction) -> int:
    return first + round((second - first) * share)


def _ns(ms: float) -> int:
    return round(ms * 10**6)
