"""Tables with titles, for a terminal and for a page."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence

Table = Sequence[Sequence[str]]


def as_text(tables: Iterable[tuple[str, Table]]) -> str:
    return "\n".join(f"{title}\n{_columns(table)}" for title, table in tables)


def as_markdown(tables: Iterable[tuple[str, Table]]) -> str:
    return "\n".join(f"## {title}\n\n{_markdown(table)}" for title, table in tables)


def as_csv(lines: Iterable[Iterable[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(lines)
    return text.getvalue()


def percent(part: float, whole: float) -> str:
    """Nothing where there is no whole."""
    return f"{part / whole:.0%}" if whole else ""


def not_possible(excluded: Mapping[tuple[str, str], str]) -> Iterator[tuple[str, Table]]:
    """The table of why, by pair and policy, where anything is excluded."""
    if excluded:
        rows = [(pair, policy, why) for (pair, policy), why in excluded.items()]
        yield "not possible", [("", "policy", "why"), *rows]


def _columns(table: Table) -> str:
    """The first to the left, numbers to the right."""
    first, *others = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = []
    for name, *numbers in table:
        right = [number.rjust(width) for number, width in zip(numbers, others, strict=True)]
        lines.append("  ".join([name.ljust(first), *right]) + "\n")
    return "".join(lines)


def _markdown(table: Table) -> str:
    head, *rows = table
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
