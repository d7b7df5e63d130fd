"""hetspec top"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

from rich.console import Console
from rich.live import Live
from rich.table import Table
from typer import Option

from hetspec_client.client import Client
from hetspec_client.commands.output import AsJson
from hetspec_client.commands.server import Server
from hetspec_client.commands.tables import rich_table, show
from hetspec_client.observe.service import Load, Service, loads
from hetspec_client.terminal import write_json

_HEADS = (
    "unit", "address", "model", "busy", "run", "wait", "sessions", "KV", "tasks/s", "rows/s", "tokens/s", "accepted",
)  # fmt: skip
_NAMES = 3


def top(
    *,
    interval: Annotated[float, Option(min=0.1, max=60.0, help="Seconds between two looks.")] = 2.0,
    once: Annotated[bool, Option("--once", help="Print one table, after one interval.")] = False,
    server: Server,
    as_json: AsJson = False,
) -> None:
    """Show how busy every service and replica is, until interrupted. With --json, once."""
    with server.connect() as client:
        before = client.units()
        if once or as_json:
            time.sleep(interval)
            told = loads(before, client.units())
            write_json([_as_json(load) for load in told]) if as_json else show(_table(told))
        else:
            _follow(client, before, interval)


def _follow(client: Client, before: list[Service], interval: float) -> None:
    """Ends with Ctrl-C, the ordinary way to leave it."""
    try:
        with Live(_table(loads([], before)), console=Console(), auto_refresh=False) as live:
            while True:
                time.sleep(interval)
                now = client.units()
                live.update(_table(loads(before, now)), refresh=True)
                before = now
    except KeyboardInterrupt:
        return


def _as_json(load: Load) -> dict[str, object]:
    """The service's own fields, and its rates beside them."""
    rates = asdict(load)
    service: dict[str, object] = rates.pop("service")
    return {name: value for name, value in service.items() if name != "more"} | dict(load.service.more) | rates


def _table(told: Sequence[Load]) -> Table:
    return rich_table(_HEADS, [_row(load) for load in told], names=_NAMES)


def _row(load: Load) -> tuple[str, ...]:
    service = load.service
    if service.problem is not None:
        return service.unit, service.address, service.problem, *("",) * (len(_HEADS) - _NAMES)
    return (
        service.unit,
        service.address,
        f"{service.model} {service.precision}".strip(),
        f"{load.busy_share:.0%}",
        str(service.running),
        str(service.queued),
        _count(service.sessions),
        _kv(service),
        f"{load.tasks_per_s:.1f}",
        f"{load.rows_per_s:.0f}" if service.unit in _COMPUTING else "",
        "" if load.tokens_per_s is None else f"{load.tokens_per_s:.1f}",
        "" if load.acceptance is None else f"{load.acceptance:.0%}",
    )


_COMPUTING = ("verifier", "drafter", "sampler")


def _kv(service: Service) -> str:
    if not service.kv_capacity_tokens:
        return ""
    return f"{service.kv_held_tokens} of {service.kv_capacity_tokens}"


def _count(number: int | None) -> str:
    return "" if number is None else str(number)
