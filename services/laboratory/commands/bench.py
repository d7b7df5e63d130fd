"""hetspec bench"""

from __future__ import annotations

import typer

from hetspec_client.commands.late import late_verbs

app = typer.Typer(
    add_completion=False,
    cls=late_verbs(
        {"lever": "laboratory.commands.lever:bench_lever", "ahasd": "laboratory.commands.ahasd:bench_ahasd"}
    ),
)


@app.callback()
def bench() -> None:
    """Compare ways of decoding on emulated hardware, from a record of a target's answers."""
