"""Tables with titles, for a terminal and for a page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Table = Sequence[Sequence[str]]


def as_text(tables: Iterable[tuple[str, Table]]) -> str:
    return "\n".join(f"{title}\n{_columns(table)}" for title, table in tables)


def as_markdown(tables: Iterable[tuple[str, Table]]) -> str:
    return "\n".join(f"## {title}\n\n{_markdown(table)}" for title, table in tables)


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
