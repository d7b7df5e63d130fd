"""The sampler's settings, read once from HETSPEC_* variables."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from hetspec.rpc.settings import UnitSettings


class SamplerSettings(UnitSettings):
    port: Annotated[int, Field(ge=0, le=65535)] = 7004
