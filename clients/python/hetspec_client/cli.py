"""The `hetspec` command. It exits with 0; 1 where the server or the way to it failed; 2 where what was asked is wrong;
130 when interrupted. A failure is one line on stderr.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from hetspec_client import plugins
from hetspec_client.commands.chat import chat
from hetspec_client.commands.expand import expand
from hetspec_client.commands.explain import explain
from hetspec_client.commands.generate import generate
from hetspec_client.commands.inspect import app as inspect
from hetspec_client.commands.models import models
from hetspec_client.commands.profile import profile
from hetspec_client.commands.stats import stats
from hetspec_client.commands.tokenize import tokenize
from hetspec_client.commands.top import top
from hetspec_client.commands.trace import trace
from hetspec_client.errors import HetspecError
from hetspec_client.plugins import PluginFailed
from hetspec_client.terminal import complain, prepare_streams, write_line


class Verbs(TyperGroup):
    """Our own, then those of plug-ins."""

    def list_commands(self, ctx: Any) -> list[str]:
        own = super().list_commands(ctx)
        return [*own, *(name for name in sorted(plugins.names() - set(own)) if _loads(name))]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        own = super().get_command(ctx, cmd_name)
        return own or (plugins.load(cmd_name) if cmd_name in plugins.names() else None)


def _loads(name: str) -> bool:
    try:
        plugins.load(name)
    except PluginFailed as error:
        complain(error)
        return False
    return True


app = typer.Typer(cls=Verbs, add_completion=False, pretty_exceptions_enable=False)
for verb in (generate, chat, models, tokenize, stats, top, profile, explain, trace):
    app.command()(expand(verb))
app.add_typer(inspect, name="inspect")


@app.callback(invoke_without_command=True)
def hetspec(
    context: typer.Context, show_version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False
) -> None:
    """Text from a hetspec server."""
    if show_version:
        write_line(version("hetspec-client"))
    elif context.invoked_subcommand is None:
        write_line(context.get_help())


def main(arguments: Sequence[str] | None = None) -> int:
    """arguments: default, the process' own. Returns the exit code."""
    prepare_streams()
    try:
        return app(arguments, prog_name="hetspec", standalone_mode=False) or 0
    except typer.Abort:
        complain("aborted")
        return 1
    except typer.TyperException as error:
        complain(error.format_message())
        return error.exit_code
    except (HetspecError, OSError) as error:
        complain(error)
        return getattr(error, "exit_code", 1)
