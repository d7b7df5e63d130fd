"""Verbs of other packages: entry points of the group `hetspec.commands`, each a `typer.Typer` under its verb's name.

One is loaded only when its verb is called or the verbs are listed: what it imports costs the other verbs nothing.
"""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any, Self

import typer

from hetspec_client.errors import HetspecError

GROUP = "hetspec.commands"


class PluginFailed(HetspecError):
    """A verb that is installed and does not load."""

    @classmethod
    def of(cls, what: str, error: Exception) -> Self:
        return cls(f"{what} does not load: {type(error).__name__}: {error}")


def names() -> set[str]:
    return entry_points(group=GROUP).names


def load(name: str) -> Any:
    """Its command. Raises PluginFailed, whatever goes wrong inside the plug-in."""
    try:
        command = typer.main.get_command(entry_points(group=GROUP)[name].load())
    except Exception as error:
        raise PluginFailed.of(f"the plug-in {name!r}", error) from error
    command.name = name
    return command
