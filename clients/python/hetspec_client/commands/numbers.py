"""The numbers behind what a task took, line by line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Json = Mapping[str, Any]
_PREFIXES = (("T", 10**12), ("G", 10**9), ("M", 10**6), ("k", 10**3))


def numbers_behind(tasks: Sequence[Json]) -> Iterator[str]:
    """Of each task: its time by component, which sums to what it took; below each, what it follows from.

    Where arithmetic and memory work at once only the longer one holds the device up, so what a line takes alone may be
    more than its component's time.
    """
    for task in tasks:
        times, numbers = task["time_ns"], task["numbers"]
        yield f"\nround {task['round']}, {task['role']} on {task['device']}: {_ms(sum(times.values()))}"
        for component in dict.fromkeys([*times, *(number["component"] for number in numbers)]):
            yield f"  {component}: {_ms(times.get(component, 0))}"
            for number in numbers:
                if number["component"] == component:
                    yield f"    {_number(number)}"


def _number(number: Json) -> str:
    device, what, alone = number["device"], number["what"], _ms(number["alone_ns"])
    if not number["per_second"]:
        return f"{device}: {number['amount']} {what}, {alone}"
    amount, rate, unit = _scaled(number["amount"]), _scaled(number["per_second"]), number["unit"]
    return f"{device}: {what}, {amount}{unit} at {rate}{unit}/s, {alone} alone"


def _scaled(amount: int) -> str:
    for prefix, factor in _PREFIXES:
        if amount >= factor:
            return f"{amount / factor:.4g} {prefix}"
    return f"{amount} "


def _ms(ns: int) -> str:
    return f"{ns / 1e6:.6f} ms"
