"""A service's settings: HETSPEC_* variables, read once; a bad value ends the start with one line."""

from __future__ import annotations

import sys
from typing import TypeVar

from pydantic import ValidationError
from pydantic_settings import BaseSettings

Settings = TypeVar("Settings", bound=BaseSettings)


def read_settings(service: str, kind: type[Settings]) -> Settings:
    """Exits with status 2 when a value is refused."""
    try:
        return kind()
    except ValidationError as error:
        print(settings_error(service, error), file=sys.stderr)
        raise SystemExit(2) from None


def settings_error(service: str, error: ValidationError) -> str:
    """The one line that names the variable."""
    first = error.errors()[0]
    name = "HETSPEC_" + str(first["loc"][0]).upper() if first["loc"] else "settings"
    return f"{service}: {name} = {first['input']!r}: {first['msg']}"
