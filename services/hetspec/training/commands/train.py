"""hetspec train"""

from __future__ import annotations

import typer

from hetspec_client.commands.late import late_verbs

_HERE = "hetspec.training.commands"
app = typer.Typer(
    add_completion=False,
    cls=late_verbs(
        {
            "draft": f"{_HERE}.draft:train_draft",
            "average": f"{_HERE}.average:train_average",
            "early-exit": f"{_HERE}.early_exit:train_early_exit",
            "acceptance": f"{_HERE}.acceptance:train_acceptance",
        }
    ),
)


@app.callback()
def train() -> None:
    """Make what speculation needs, for any target."""
