"""A cost told line by line, with the numbers that it follows from."""

from __future__ import annotations

from collections.abc import Iterator

from hetspec.hardware.cost import Component, Cost, Part


def describe(cost: Cost) -> list[str]:
    """The time by component, which sums to the duration; below each, what it follows from; then the energy.

    Where arithmetic and memory work at once only the longer one holds the device up, so a line's own time may be longer
    than its component's.
    """
    lines = [f"{cost.device}: {_ms(cost.duration_ns)}, {_mj(cost.energy_pj)}"]
    behind = {component: [part for part in cost.parts if part.component is component] for component in Component}
    for component in Component:
        if component in cost.time_ns or behind[component]:
            lines.append(f"  {component}: {_ms(cost.time_ns.get(component, 0))}")
            lines += [f"    {_part(part)}" for part in behind[component]]
    return [*lines, *_energy(cost)]


def _energy(cost: Cost) -> Iterator[str]:
    for use in cost.uses:
        yield f"  energy of {use.device}, {use.component}: {_mj(use.energy_pj)}"


def _part(part: Part) -> str:
    if not part.per_second:
        return f"{part.device}: {part.amount} {part.what}, {_ms(part.alone_ns)}"
    amount, rate = _scaled(part.amount), _scaled(part.per_second)
    return f"{part.device}: {part.what}, {amount}{part.unit} at {rate}{part.unit}/s, {_ms(part.alone_ns)} alone"


def _scaled(amount: int) -> str:
    for prefix, factor in (("T", 10**12), ("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if amount >= factor:
            return f"{amount / factor:.4g} {prefix}"
    return f"{amount} "


def _ms(duration_ns: int) -> str:
    return f"{duration_ns / 10**6:.6f} ms"


def _mj(energy_pj: int) -> str:
    return f"{energy_pj / 10**9:.6f} mJ"
