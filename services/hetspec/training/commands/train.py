"""hetspec train"""

from __future__ import annotations

import typer

from hetspec.training.commands.acceptance import train_acceptance
from hetspec.training.commands.draft import train_draft
from hetspec.training.commands.early_exit import train_early_exit
from hetspec_client.commands.expand import expand

app = typer.Typer()
app.command("draft")(expand(train_draft))
app.command("early-exit")(expand(train_early_exit))
app.command("acceptance")(expand(train_acceptance))


@app.callback()
def train() -> None:
    """Make what speculation needs, for any target."""
