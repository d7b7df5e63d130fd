"""Verbs that are imported when they are called or asked for their help, not when those beside them are."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

from hetspec_client.commands.expand import expand
from hetspec_client.plugins import PluginFailed


def late_verbs(of: Mapping[str, str]) -> type[TyperGroup]:
    """The group of these verbs, for `typer.Typer(cls=…)`. of: by name, where each is, as "module:function"."""

    class LateVerbs(TyperGroup):
        def list_commands(self, ctx: Any) -> list[str]:
            return list(of)

        def get_command(self, ctx: Any, cmd_name: str) -> Any:
            return _command(cmd_name, of[cmd_name]) if cmd_name in of else None

    return LateVerbs


def _command(name: str, place: str) -> Any:
    """Raises PluginFailed where it cannot be imported."""
    module, _, function = place.partition(":")
    try:
        verb = getattr(import_module(module), function)
    except ImportError as error:
        raise PluginFailed.of(name, error) from error
    app = typer.Typer(add_completion=False)
    app.command(name)(expand(verb))
    return typer.main.get_command(app)
