"""hetspec eval"""

from __future__ import annotations

import typer

from hetspec.training.commands.acceptance import eval_acceptance
from hetspec.training.commands.draft import eval_draft
from hetspec.training.commands.early_exit import eval_early_exit
from hetspec_client.commands.expand import expand

app = typer.Typer()
app.command("draft")(expand(eval_draft))
app.command("early-exit")(expand(eval_early_exit))
app.command("acceptance")(expand(eval_acceptance))


@app.callback()
def evaluate() -> None:
    """Measure what was trained."""
