"""The orchestrator's settings, read once from HETSPEC_* variables."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints
from pydantic_settings import BaseSettings, SettingsConfigDict

_PLACE = r"[^:,\s]+:[0-9]{1,5}"
Address = Annotated[str, StringConstraints(pattern=rf"^{_PLACE}$")]  # host:port
Addresses = Annotated[str, StringConstraints(pattern=rf"^{_PLACE}(,{_PLACE})*$")]  # of one unit's replicas


class OrchestratorSettings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="HETSPEC_", frozen=True)

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 8000

    weight_store: Address = "127.0.0.1:7001"
    verifier: Addresses = "127.0.0.1:7002"
    drafter: Addresses = "127.0.0.1:7003"
    sampler: Addresses = "127.0.0.1:7004"

    mode: Literal["plain", "chain", "tree"] = "tree"  # of requests that name none
    max_running: Annotated[int, Field(ge=1)] = 64  # requests in the engine at once
    max_queued: Annotated[int, Field(ge=0)] = 256  # requests that wait for one of them to end; more are refused
    max_body_bytes: Annotated[int, Field(ge=1024)] = 1 << 20  # of a request
    request_timeout_s: Annotated[float, Field(gt=0)] = 600.0
    drain_s: Annotated[float, Field(ge=0)] = 10.0  # for running requests, when told to stop
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
