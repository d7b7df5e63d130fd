"""hetspec eval"""

from __future__ import annotations

import typer

from hetspec_client.commands.late import late_verbs

_HERE = "hetspec.training.commands"
app = typer.Typer(
    add_completion=False,
    cls=late_verbs(
        {
            "draft": f"{_HERE}.draft:eval_draft",
            "early-exit": f"{_HERE}.early_exit:eval_early_exit",
            "acceptance": f"{_HERE}.acceptance:eval_acceptance",
        }
    ),
)


@app.callback()
def evaluate() -> None:
    """Measure what was trained."""
