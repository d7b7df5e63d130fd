"""hetspec bench"""

from __future__ import annotations

import typer

from hetspec_client.commands.expand import expand
from laboratory.commands.ahasd import bench_ahasd
from laboratory.commands.lever import bench_lever

app = typer.Typer()
app.command("lever")(expand(bench_lever))
app.command("ahasd")(expand(bench_ahasd))


@app.callback()
def bench() -> None:
    """Compare ways of decoding on emulated hardware, from a record of a target's answers."""
