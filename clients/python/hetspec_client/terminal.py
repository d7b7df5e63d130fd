"""What the command line prints: answers on stdout, the rest on stderr."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from hetspec_client.errors import HetspecError

_CONTROL = dict.fromkeys([*range(0x20), *range(0x7F, 0xA0)], "\N{REPLACEMENT CHARACTER}")
_CONTROL |= {ord(kept): kept for kept in "\n\t"}


class OutputFailed(HetspecError):
    """Nobody reads stdout any more, or it cannot be written."""


def prepare_streams() -> None:
    """A closed stdin or stderr is an empty one. What an encoding cannot hold is replaced, and stops nothing."""
    sys.stdin = sys.stdin or io.TextIOWrapper(io.BytesIO())
    sys.stderr = sys.stderr or io.StringIO()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def write(text: str) -> None:
    """At once, as it is; a terminal is spared control characters. Raises OutputFailed."""
    with _output():
        sys.stdout.write(text.translate(_CONTROL) if sys.stdout.isatty() else text)
        sys.stdout.flush()


def write_line(text: str = "") -> None:
    write(f"{text}\n")


def write_json(value: Any) -> None:
    write_line(json.dumps(value, ensure_ascii=False, indent=2))


def write_table(rows: Sequence[Sequence[str]]) -> None:
    """Columns as wide as they must be, and never cut."""
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell + " " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True))
        write_line("  ".join(cells).rstrip())


def write_tables(tables: Iterable[Sequence[Sequence[str]]]) -> None:
    """With a line between them."""
    for place, table in enumerate(tables):
        if place:
            write_line()
        write_table(table)


def note(text: str) -> None:
    """One line beside the answer, dim where stderr is a terminal."""
    Console(stderr=True, soft_wrap=True, highlight=False).print(Text(one_line(text), style="dim"))


def complain(failure: object) -> None:
    """The one line that a failure is."""
    print(f"hetspec: {one_line(str(failure))}", file=sys.stderr)


def one_line(text: str) -> str:
    return " ".join(text.split()).translate(_CONTROL)


@contextmanager
def _output() -> Iterator[None]:
    if sys.stdout is None:
        raise OutputFailed("the output cannot be written: it is closed")
    try:
        yield
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left in the buffer goes there
        raise OutputFailed(f"the output cannot be written: {error.strerror}") from error
