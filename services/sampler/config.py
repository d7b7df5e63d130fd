"""The sampler's settings, read once from HETSPEC_* variables."""

from __future__ import annotations

from hetspec.rpc.settings import Port, UnitSettings


class SamplerSettings(UnitSettings):
    port: Port = 7004
