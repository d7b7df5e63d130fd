"""A service's settings: HETSPEC_* variables, read once; a bad value ends the start with one line."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Literal, Self, TypeVar

from pydantic import Field, StringConstraints, ValidationError, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from hetspec.rpc.tls import RpcTls
from hetspec.threads import default_threads

Settings = TypeVar("Settings", bound=BaseSettings)

SECRET_ERROR = "secret"
"""Type of the errors of values that nobody may see."""


Port = Annotated[int, Field(ge=0, le=65535)]  # 0: any free one


class ServiceSettings(BaseSettings):
    """What all services have in common."""

    model_config = SettingsConfigDict(env_prefix="HETSPEC_", frozen=True)

    host: str = "127.0.0.1"
    port: Port = 0
    drain_s: Annotated[float, Field(ge=0)] = 10.0  # for what runs, when told to stop
    metrics_port: Port | None = None  # of /metrics, for Prometheus; None: not served
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    # Spans are sent where the standard OTEL_* variables say.
    traces: bool = Field(default_factory=lambda: "OTEL_EXPORTER_OTLP_ENDPOINT" in os.environ)
    # Mutual TLS between the services: all three on all of them, or none.
    rpc_tls_ca: Path | None = None
    rpc_tls_cert: Path | None = None
    rpc_tls_key: Path | None = None

    @property
    def rpc_tls(self) -> RpcTls | None:
        ca, cert, key = self.rpc_tls_ca, self.rpc_tls_cert, self.rpc_tls_key
        return RpcTls(ca, cert, key) if ca and cert and key else None

    @model_validator(mode="after")
    def _rpc_tls_is_whole(self) -> Self:
        if self.rpc_tls is not None:
            self.rpc_tls.check()
        elif self.rpc_tls_ca or self.rpc_tls_cert or self.rpc_tls_key:
            raise ValueError("HETSPEC_RPC_TLS_CA, HETSPEC_RPC_TLS_CERT, HETSPEC_RPC_TLS_KEY: give all three, or none")
        return self


class UnitSettings(ServiceSettings):
    """What verifier, drafter and sampler have in common."""

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
    """The one line that names the variable, and shows its value unless that is a secret."""
    first = error.errors()[0]
    reason = first["msg"].removeprefix("Value error, ")
    if not first["loc"]:  # of several together; the message names them
        return f"{service}: {reason}"
    name = "HETSPEC_" + str(first["loc"][0]).upper()
    shown = "" if first["type"] == SECRET_ERROR else f" = {first['input']!r}"
    return f"{service}: {name}{shown}: {reason}"
