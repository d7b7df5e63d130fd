"""hetspec inspect"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any
from urllib.parse import quote

import typer
from typer import Argument

from hetspec_client.calls import get
from hetspec_client.commands.expand import expand
from hetspec_client.commands.output import AsJson
from hetspec_client.commands.server import Server
from hetspec_client.errors import UnexpectedAnswer
from hetspec_client.terminal import write_json, write_line, write_table

_LEVELS, _AHEAD = 8, 8  # of the index of a counter: older batches' entropy, newer ones', batches ahead
_UNTOUCHED, _GOES_ON = 2, 2
Json = Mapping[str, Any]


def edc(
    request_id: Annotated[
        str | None, Argument(help="An answer's x-request-id.", show_default="what requests share")
    ] = None,
    *,
    server: Server,
    as_json: AsJson = False,
) -> None:
    """Show the tables by which drafting ahead is controlled."""
    where = "" if request_id is None else f"/{quote(request_id, safe='')}"
    with server.connect() as client:
        told = client.call(get(f"/v1/hetspec/edc{where}"))
    if as_json:
        write_json(told)
        return
    try:
        shown = [*_shared(told)] if request_id is None else [*_of_request(told)]
    except (KeyError, TypeError, ValueError) as error:
        raise UnexpectedAnswer(f"no tables: {error}") from error
    for one in shown:
        if isinstance(one, str):
            write_line(one)
        else:
            write_table(one)


def _shared(told: Json) -> Iterator[str | list[tuple[str, ...]]]:
    yield "counters that requests share"
    yield from _pattern_history(told["counters"])


def _of_request(told: Json) -> Iterator[str | list[tuple[str, ...]]]:
    for choice in told["choices"]:
        tables = choice["edc"]
        yield f"choice {choice['index']}: {tables['foretold']} of {tables['verified']} verdicts foretold"
        yield [
            ("entropy of 8 intervals up to", f"{tables['max_entropy']:g} nats"),
            ("last drafted, newest first", _row(tables["leht"])),
            ("last accepted, newest first", _row(tables["lceht"])),
            ("batches ahead", str(tables["ahead"])),
            ("drafts on", "yes" if tables["may_look_ahead"] else "no"),
        ]
        yield from _pattern_history(tables["counters"])


def _pattern_history(counters: Sequence[int]) -> Iterator[str | list[tuple[str, ...]]]:
    """Those counters that have learned something."""
    if len(counters) != _LEVELS * _LEVELS * _AHEAD:
        raise ValueError(f"{len(counters)} counters, must be {_LEVELS * _LEVELS * _AHEAD}")
    lines = [_line(index, value) for index, value in enumerate(counters) if value != _UNTOUCHED]
    if lines:
        yield [("older", "newer", "ahead", "counter", "drafts on"), *lines]
    else:
        yield "no counter differs from what it began as"


def _line(index: int, value: int) -> tuple[str, ...]:
    rest, ahead = divmod(index, _AHEAD)
    older, newer = divmod(rest, _LEVELS)
    return str(older), str(newer), str(ahead), str(value), "yes" if value >= _GOES_ON else "no"


def _row(levels: Sequence[int]) -> str:
    return " ".join(map(str, levels))


app = typer.Typer()
app.command("edc")(expand(edc))


@app.callback()
def inspect() -> None:
    """Show what a server has learned."""
