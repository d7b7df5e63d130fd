"""hetspec trace"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

from rich.console import Console
from typer import Argument, Option

from hetspec_client.answers import parse
from hetspec_client.calls import get
from hetspec_client.commands.output import AsJson
from hetspec_client.commands.server import Server
from hetspec_client.commands.tables import rich_table, show
from hetspec_client.files import writable, write_file
from hetspec_client.observe.trace import Axis, Trace
from hetspec_client.observe.trace_svg import trace_svg
from hetspec_client.observe.trace_text import HEADS, lane_lines, legend, rows
from hetspec_client.terminal import write_json, write_line


def trace(
    request_id: Annotated[str, Argument(help="An answer's x-request-id.")],
    *,
    out: Annotated[Path | None, Option(help="A file for the trace, which Perfetto opens.")] = None,
    picture: Annotated[Path | None, Option(help="A file for a picture of it, SVG.")] = None,
    host: Annotated[bool, Option("--host", help="Show the host's time, also where there is an emulated one.")] = False,
    server: Server,
    as_json: AsJson = False,
) -> None:
    """Show when each device worked on a request, and what for."""
    for option, path in (("--out", out), ("--picture", picture)):
        if path is not None:
            writable(option, path)
    with server.connect() as client:
        told = parse(Trace.parse, client.call(get(f"/v1/hetspec/traces/{quote(request_id, safe='')}")))
    axis = told.host if host or told.emulated is None else told.emulated
    if out is not None:
        write_file("--out", out, json.dumps(told.raw))
    if picture is not None:
        write_file("--picture", picture, trace_svg(told, axis))
    if as_json:
        write_json(told.raw)
        return
    _show(told, axis)
    if out is not None:
        write_line(f"\n{out}  for https://ui.perfetto.dev")


def _show(told: Trace, axis: Axis) -> None:
    write_line(f"{axis.name}, mode {told.mode}: {axis.us / 1e3:.3f} ms\n")
    for line in lane_lines(axis, Console().width):
        show(line)
    show(legend(axis))
    write_line()
    show(rich_table(HEADS, rows(axis)))
    if told.left_out:
        write_line(f"{told.left_out} tasks more than are kept of a request are missing")
