"""Tables on the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, RenderableType
from rich.table import Table

_WIDEST = 200


def rich_table(
    heads: Sequence[str], rows: Sequence[Sequence[str]], title: str | None = None, *, names: int = 1
) -> Table:
    """The first `names` columns name things, the others are numbers."""
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, header_style="dim")
    for place, head in enumerate(heads):
        table.add_column(head, justify="left" if place < names else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table


def show(what: RenderableType) -> None:
    """On stdout, as wide as it must be: a terminal that is narrower breaks lines, nothing is cut."""
    console = Console(highlight=False, markup=False)
    console.width = max(console.width, _WIDEST)
    console.print(what)
