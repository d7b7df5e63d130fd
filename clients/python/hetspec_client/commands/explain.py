"""hetspec explain"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any
from urllib.parse import quote

from typer import Argument, Option

from hetspec_client.calls import get
from hetspec_client.commands.numbers import numbers_behind
from hetspec_client.commands.output import AsJson
from hetspec_client.commands.server import Server
from hetspec_client.errors import UnexpectedAnswer
from hetspec_client.terminal import write_json, write_line, write_table

Json = Mapping[str, Any]


def explain(
    request_id: Annotated[str, Argument(help="An answer's x-request-id.")],
    *,
    server: Server,
    numbers: Annotated[bool, Option("--numbers", help="And what every task's time follows from.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show where a request's time and energy went on emulated hardware, task by task."""
    with server.connect() as client:
        told = client.call(get(f"/v1/hetspec/requests/{quote(request_id, safe='')}"))
    if as_json:
        write_json(told)
        return
    try:
        tables = [(choice["index"], *_tables(choice)) for choice in told["choices"]]
        behind = [[*numbers_behind(choice["tasks"])] if numbers else [] for choice in told["choices"]]
        write_line(f"{told['hardware']}, priced as {told['cost_as']}, clock {told['clock']}")
    except (KeyError, TypeError) as error:
        raise UnexpectedAnswer(f"no explanation: {error}") from error
    for (index, times, energies), lines in zip(tables, behind, strict=True):
        write_line(f"\nchoice {index}")
        write_table(times)
        write_line()
        write_table(energies)
        for line in lines:
            write_line(line)


def _tables(choice: Json) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
    """Of time, a line for every task, and of energy. Both end with the total."""
    parts = sorted({part for task in choice["tasks"] for part in task["time_ns"]})
    heading = ("round", "task", "device", "rows", "head", "start_ms", "waited", *parts, "took")
    lines = [_line(task, parts) for task in choice["tasks"]]
    return [heading, *lines, *_totals(choice, parts)], [*_energies(choice["energy_pj"])]


def _line(task: Json, parts: Sequence[str]) -> tuple[str, ...]:
    spent = [task["waited_ns"], *(task["time_ns"].get(part, 0) for part in parts)]
    rows = str(task["rows"]) if task["rows"] == task["pass_rows"] else f"{task['rows']} of {task['pass_rows']}"
    place = (str(task["round"]), task["role"], task["device"], rows, str(task["head_rows"] or ""))
    return (*place, _ms(task["start_ns"] - task["waited_ns"]), *map(_ms, spent), _ms(sum(spent)))


def _totals(choice: Json, parts: Sequence[str]) -> Iterator[tuple[str, ...]]:
    spent: Counter[str] = Counter()
    for task in choice["tasks"]:
        spent.update(task["time_ns"])
    waited = choice["waited_ns"] + sum(task["waited_ns"] for task in choice["tasks"])
    blank, no_parts = ("",) * 4, ("",) * len(parts)
    if alone := choice["waited_ns"]:
        yield ("", "others' reading", *blank, _ms(alone), *no_parts, _ms(alone))
    if overlapped := choice["overlapped_ns"]:
        yield ("", "at the same time", *blank, "", *no_parts, _ms(overlapped))
    yield ("all", "", *blank, _ms(waited), *(_ms(spent[part]) for part in parts), _ms(choice["total_ns"]))


def _energies(by_device: Mapping[str, Mapping[str, int]]) -> Iterator[tuple[str, ...]]:
    parts = sorted({part for energies in by_device.values() for part in energies})
    yield ("mJ", *parts, "sum")
    for device, energies in by_device.items():
        yield (device, *(_mj(energies.get(part, 0)) for part in parts), _mj(sum(energies.values())))
    sums = [sum(energies.get(part, 0) for energies in by_device.values()) for part in parts]
    yield ("all", *map(_mj, sums), _mj(sum(sums)))


def _ms(ns: int) -> str:
    return f"{ns / 1e6:.3f}"


def _mj(pj: int) -> str:
    return f"{pj / 1e9:.3f}"
