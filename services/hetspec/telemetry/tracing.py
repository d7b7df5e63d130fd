"""Spans of a request. Whatever works for it finds the span around it in the context it runs in.

Without traces a span costs one look-up, and nothing of OpenTelemetry is imported.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Protocol

from hetspec.telemetry.task_record import TaskRecord

Attributes = Mapping[str, str | int | float | bool]


class Span(Protocol):
    @property
    def traceparent(self) -> str:
        """Names it to other processes, as W3C Trace Context writes it."""

    def child(self, name: str, attributes: Attributes) -> Span: ...

    def set(self, attributes: Attributes) -> None: ...

    def end(self, error: BaseException | None = None) -> None: ...


class Traces(Protocol):
    """Where a service's spans go."""

    def request(self, name: str, traceparent: str, attributes: Attributes) -> Span:
        """The first span of a request; with a valid `traceparent` it goes on with the client's trace."""

    def task(self, unit: str, record: TaskRecord, parents: Sequence[str], pass_id: str, end_ns: int) -> None:
        """A task that ended at `end_ns` (Unix time): a span below each of `parents`, which may be empty strings."""

    def close(self) -> None:
        """Sends what is left. Blocks."""


_current: ContextVar[Span | None] = ContextVar("hetspec_span", default=None)


class span:
    """A span around a block, below the one that the block runs in; nothing where there is none."""

    __slots__ = ("_attributes", "_name", "_span", "_token")

    def __init__(self, name: str, **attributes: str | int | float | bool) -> None:
        self._name = name
        self._attributes = attributes
        self._span: Span | None = None
        self._token: Token[Span | None]

    def __enter__(self) -> None:
        parent = _current.get()
        if parent is not None:
            self._span = parent.child(self._name, self._attributes)
            self._token = _current.set(self._span)

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None) -> None:
        if self._span is not None:
            _current.reset(self._token)
            self._span.end(error)


@contextmanager
def request_span(first: Span) -> Iterator[None]:
    """Makes `first` the span that the block runs in, and ends it with the block."""
    token = _current.set(first)
    error: BaseException | None = None
    try:
        yield
    except BaseException as caught:
        error = caught
        raise
    finally:
        _current.reset(token)
        first.end(error)


def traceparent() -> str:
    """Of the span this runs in; empty where there is none."""
    current = _current.get()
    return "" if current is None else current.traceparent


def annotate(**attributes: str | int | float | bool) -> None:
    """Adds to the span this runs in."""
    if (current := _current.get()) is not None:
        current.set(attributes)
