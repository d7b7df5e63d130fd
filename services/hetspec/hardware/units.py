"""Units of hardware numbers: a text such as `76.8 GB/s` becomes an exact whole number of a base unit."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from enum import StrEnum
from fractions import Fraction
from functools import cache


class Dimension(StrEnum):
    """What a number measures; its value is the base unit that everything is reckoned in."""

    RATE = "op/s"
    BANDWIDTH = "B/s"
    SIZE = "B"
    TIME = "ns"
    POWER = "uW"
    ENERGY_PER_OP = "aJ/op"
    ENERGY_PER_BYTE = "aJ/B"
    COUNT = ""


_DECIMAL = {"K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30}
_SIZES = {f"{prefix}B": factor for prefix, factor in {"": 1, **_DECIMAL, **_BINARY}.items()}

_UNITS: dict[Dimension, dict[str, int]] = {
    Dimension.RATE: {f"{prefix}{kind}": f for prefix, f in _DECIMAL.items() for kind in ("OPS", "FLOPS")},
    Dimension.BANDWIDTH: {f"{unit}/s": factor for unit, factor in _SIZES.items()},
    Dimension.SIZE: _SIZES,
    Dimension.TIME: {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9},
    Dimension.POWER: {"uW": 1, "mW": 10**3, "W": 10**6},
    Dimension.ENERGY_PER_OP: {"fJ/op": 10**3, "pJ/op": 10**6},
    Dimension.ENERGY_PER_BYTE: {"pJ/B": 10**6, "nJ/B": 10**9, "pJ/bit": 8 * 10**6},
    Dimension.COUNT: {"": 1},
}
# How efficiency is often told: so many operations for a joule.
_INVERSE = {
    Dimension.ENERGY_PER_OP: {f"{prefix}{kind}/W": f for prefix, f in _DECIMAL.items() for kind in ("OPS", "FLOPS")}
}
_ATTOJOULES = 10**18
# Beyond what anybody builds or measures, but for a zero: least and most.
BOUNDS: dict[Dimension, tuple[str, str]] = {
    Dimension.RATE: ("1 MOPS", "1000000 TOPS"),
    Dimension.BANDWIDTH: ("1 KB/s", "1000000 TB/s"),
    Dimension.SIZE: ("1 B", "1000000 TB"),
    Dimension.TIME: ("1 ns", "1000 s"),
    Dimension.POWER: ("1 uW", "1000000 W"),
    Dimension.ENERGY_PER_OP: ("0.001 fJ/op", "1000000 pJ/op"),
    Dimension.ENERGY_PER_BYTE: ("0.001 pJ/B", "1000 nJ/B"),
    Dimension.COUNT: ("1", "1000000"),
}
_MOST_DIGITS = 40  # before or behind the point: more are out of all bounds, and take long to reckon with


@cache
def parse(text: str, dimension: Dimension) -> int:
    """`45 TOPS` as 45 * 10**12 and so on; a count has no unit.

    Raises ValueError for another unit, for a number below 0 or beyond `BOUNDS`, and for one that is not whole in the
    base unit. An efficiency (`TOPS/W`) is rounded to whole attojoules, since it seldom is.
    """
    number, _, unit = text.strip().partition(" ")
    inverse = _INVERSE.get(dimension, {})
    value = _number(text, number, dimension)
    if unit in inverse:
        if not value:
            raise ValueError(f"{text!r}, must be positive")
        base = Fraction(round(_ATTOJOULES / (value * inverse[unit])))
    elif unit in _UNITS[dimension]:
        base = value * _UNITS[dimension][unit]
    else:
        known = [name or "none" for name in (*_UNITS[dimension], *inverse)]
        raise ValueError(f"{text!r}, its unit must be {' or '.join(known)}")
    if base.denominator != 1:
        raise ValueError(f"{text!r}, must be a whole number of {dimension or 'pieces'}")
    least, most = (_base(bound, dimension) for bound in BOUNDS[dimension])
    if value and not least <= base <= most:
        raise _out_of_bounds(text, dimension)
    return base.numerator


def _number(text: str, number: str, dimension: Dimension) -> Fraction:
    try:
        value = Decimal(number)
        if not value.is_finite():
            raise ValueError(f"{number} is no number")
    except (InvalidOperation, ValueError) as error:
        raise ValueError(f"{text!r}, must be a number{' and its unit' if dimension else ''}") from error
    if value < 0:
        raise ValueError(f"{text!r}, must not be negative")
    if value and abs(value.adjusted()) > _MOST_DIGITS:
        raise _out_of_bounds(text, dimension)
    return Fraction(value)


def _base(bound: str, dimension: Dimension) -> Fraction:
    number, _, unit = bound.partition(" ")
    return Fraction(number) * _UNITS[dimension][unit]


def _out_of_bounds(text: str, dimension: Dimension) -> ValueError:
    return ValueError(f"{text!r:.60}, must be in [{', '.join(BOUNDS[dimension])}]")


def ceil_div(amount: int, divisor: int) -> int:
    return -(-amount // divisor)


def time_ns(amount: int, per_second: int) -> int:
    """Of so many operations or bytes, rounded up to whole nanoseconds."""
    return ceil_div(amount * 10**9, per_second)
