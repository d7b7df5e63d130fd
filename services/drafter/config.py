"""The drafter's settings, read once from HETSPEC_* variables."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints
from pydantic_settings import BaseSettings, SettingsConfigDict

from hetspec.threads import default_threads


class DrafterSettings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="HETSPEC_", frozen=True)

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 7003
    weight_store: Annotated[str, StringConstraints(pattern=r"^[^:\s]+:[0-9]{1,5}$")] = "127.0.0.1:7001"
    precision: Literal["int8", "float32"] = "int8"
    threads: Annotated[int, Field(ge=1)] = Field(default_factory=default_threads)
    weights_timeout_s: Annotated[float, Field(gt=0)] = 120.0  # for the weight store to answer, and to make the pack
    max_context: Annotated[int, Field(ge=16)] = 8192
    kv_tokens: Annotated[int, Field(ge=128)] = 32768  # KV positions of the draft model, over all sessions
