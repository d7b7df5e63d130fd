"""A number of a profile with where it comes from: `{value: 4.2 GB/s, source: samsung}` or `{…, assumption: why}`."""

from __future__ import annotations

from datetime import date
from typing import Annotated, ClassVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, StringConstraints, model_validator

from hetspec.hardware.units import Dimension, parse


class Strict(BaseModel):
    """Unknown fields are refused; nothing is converted but a bare number to its text."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


def _as_text(value: object) -> object:
    """YAML reads bare numbers as such, years among them, and whole dates as dates."""
    return str(value) if isinstance(value, int | float | date) and not isinstance(value, bool) else value


def _is_a_date(text: str) -> str:
    """Raises ValueError."""
    year, month, day = [*map(int, text.split("-")), 1, 1][:3]
    if not FIRST_YEAR <= year <= LAST_YEAR:
        raise ValueError(f"{text!r}, must be of the years {FIRST_YEAR} to {LAST_YEAR}")
    try:
        date(year, month, day)
    except ValueError as error:
        raise ValueError(f"{text!r}, is no date: {error}") from error
    return text


FIRST_YEAR, LAST_YEAR = 1900, 2099
Text = Annotated[str, StringConstraints(min_length=1, strip_whitespace=True)]
Date = Annotated[
    str,
    BeforeValidator(_as_text),
    StringConstraints(pattern=r"^[0-9]{4}(-[0-9]{2}(-[0-9]{2})?)?$"),
    AfterValidator(_is_a_date),
]
"""`2024`, `2024-12` or whole."""


class Provenance(Strict):
    """source: a key of the profile's `sources`. assumption: why this number, where nobody has published one."""

    source: Text | None = None
    assumption: Text | None = None
    note: Text | None = None

    @model_validator(mode="after")
    def _check_origin(self) -> Provenance:
        if (self.source is None) == (self.assumption is None):
            raise ValueError("must have either a source or an assumption")
        return self


class Quantity(Provenance):
    """`base`: the value in its dimension's base unit."""

    dimension: ClassVar[Dimension]
    may_be_zero: ClassVar[bool] = False

    value: Annotated[str, BeforeValidator(_as_text)]

    @model_validator(mode="after")
    def _check_value(self) -> Quantity:
        if not self.base and not self.may_be_zero:
            raise ValueError(f"value {self.value!r}, must be positive")
        return self

    @property
    def base(self) -> int:
        return parse(self.value, self.dimension)


class Rate(Quantity):
    dimension = Dimension.RATE


class Bandwidth(Quantity):
    dimension = Dimension.BANDWIDTH


class Size(Quantity):
    dimension = Dimension.SIZE


class SizeOrNone(Quantity):
    dimension = Dimension.SIZE
    may_be_zero = True


class Time(Quantity):
    dimension = Dimension.TIME
    may_be_zero = True


class Power(Quantity):
    dimension = Dimension.POWER
    may_be_zero = True


class EnergyPerOp(Quantity):
    dimension = Dimension.ENERGY_PER_OP
    may_be_zero = True


class EnergyPerByte(Quantity):
    dimension = Dimension.ENERGY_PER_BYTE
    may_be_zero = True


class Count(Quantity):
    dimension = Dimension.COUNT
