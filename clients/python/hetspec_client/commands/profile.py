"""hetspec profile"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from typer import Argument, Option

from hetspec_client.answers import parse
from hetspec_client.calls import Call, post
from hetspec_client.commands.output import AsJson
from hetspec_client.commands.server import Server
from hetspec_client.commands.tables import rich_table, show
from hetspec_client.files import writable_folder, write_file
from hetspec_client.observe.flame_svg import flame_svg, subtitle, title
from hetspec_client.observe.profile import Profile
from hetspec_client.observe.speedscope import speedscope
from hetspec_client.observe.tables import tables
from hetspec_client.observe.trace_events import trace_events
from hetspec_client.terminal import write_json, write_line

_TICK_S = 0.1


def profile(
    unit: Annotated[str, Argument(help="verifier, drafter, sampler, weight_store or orchestrator.")],
    *,
    replica: Annotated[
        str | None, Option(help="Its address or place, as `hetspec top` shows them.", show_default="the busiest")
    ] = None,
    seconds: Annotated[int, Option(help="How long to look, 1 to 60.")] = 10,
    out: Annotated[
        Path | None, Option(help="Where files go: flame graph, Speedscope, Perfetto.", show_default="here")
    ] = None,
    server: Server,
    as_json: AsJson = False,
) -> None:
    """Show where one service spends its time while it works. With --json, files are written only where --out says."""
    call = profile_call(unit, replica, seconds)
    folder = out or (None if as_json else Path())
    if folder is not None:
        writable_folder("--out", folder)
    with server.connect() as client, _progress(unit, seconds):
        told = parse(Profile.parse, client.call(call))
    written = write_files(told, folder) if folder is not None else []
    if as_json:
        write_json(told.raw)
    else:
        _show(told, written)


def profile_call(unit: str, replica: str | None, seconds: int) -> Call:
    named = {} if replica is None else {"replica": int(replica) if replica.isdecimal() else replica}
    return post("/v1/hetspec/profile", {"unit": unit.replace("-", "_"), "seconds": seconds, **named})


def write_files(told: Profile, folder: Path) -> list[Path]:
    """Named after unit and replica. Raises InvalidInput where they cannot be written."""
    contents = {
        "svg": flame_svg(told),
        "speedscope.json": json.dumps(speedscope(told)),
        "trace.json": json.dumps(trace_events(told)),
    }
    if not told.tasks:
        del contents["trace.json"]
    written = {folder / f"{told.service.name}.{ending}": content for ending, content in contents.items()}
    for path, content in written.items():
        write_file("--out", path, content)
    return list(written)


def _show(told: Profile, written: list[Path]) -> None:
    write_line(f"{title(told)}: {subtitle(told)[0]}")
    for table in tables(told):
        write_line()
        show(rich_table(table.heads, table.rows, table.title, names=2 if table.title == "Operators" else 1))
    write_line()
    for path in written:
        write_line(f"{path}{_HINTS[path.suffixes[-2] if path.suffix == '.json' else path.suffix]}")


_HINTS = {
    ".svg": "  the flame graph, for any browser",
    ".speedscope": "  for https://www.speedscope.app",
    ".trace": "  for https://ui.perfetto.dev",
}


@contextmanager
def _progress(unit: str, seconds: int) -> Iterator[None]:
    """A bar for the time that the service looks, where stderr is a terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("profiling " + unit), BarColumn(), TextColumn("{task.completed:.0f} of {task.total:.0f} s"))
    over = threading.Event()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        watched, started = bar.add_task(unit, total=seconds), time.monotonic()

        def tick() -> None:
            while not over.wait(_TICK_S):
                bar.update(watched, completed=min(time.monotonic() - started, seconds))

        ticker = threading.Thread(target=tick, daemon=True)
        ticker.start()
        try:
            yield
        finally:
            over.set()
            ticker.join()
