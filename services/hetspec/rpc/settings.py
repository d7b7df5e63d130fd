"""A service's settings: HETSPEC_* variables, read once; a bad value ends the start with one line."""

from __future__ import annotations

import sys
from typing import Annotated, Literal, TypeVar

from pydantic import Field, StringConstraints, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from hetspec.threads import default_threads

Settings = TypeVar("Settings", bound=BaseSettings)


class UnitSettings(BaseSettings):
    """What verifier, drafter and sampler have in common."""

    model_config = SettingsConfigDict(env_prefix="HETSPEC_", frozen=True)

    host: str = "127.0.0.1"
    weight_store: Annotated[str, StringConstraints(pattern=r"^[^:\s]+:[0-9]{1,5}$")] = "127.0.0.1:7001"
    precision: Literal["int8", "float32"] = "int8"
    threads: Annotated[int, Field(ge=1)] = Field(default_factory=default_threads)
    weights_timeout_s: Annotated[float, Field(gt=0)] = 120.0  # for the weight store to answer, and to make the pack


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
