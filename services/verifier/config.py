"""The verifier's settings, read once from HETSPEC_* variables."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints
from pydantic_settings import BaseSettings, SettingsConfigDict

from hetspec.threads import default_threads


class VerifierSettings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="HETSPEC_", frozen=True)

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 7002
    weight_store: Annotated[str, StringConstraints(pattern=r"^[^:\s]+:[0-9]{1,5}$")] = "127.0.0.1:7001"
    precision: Literal["int8", "float32"] = "int8"
    threads: Annotated[int, Field(ge=1)] = Field(default_factory=default_threads)
    weights_timeout_s: Annotated[float, Field(gt=0)] = 120.0  # for the weight store to answer, and to make the pack
    # Bytes ("200000000"), or a share of all layers ("25%"); 0: every layer stays in memory.
    dram_budget: Annotated[str, StringConstraints(pattern=r"^(0|[1-9][0-9]*|([1-9][0-9]?|100)%)$")] = "0"
    direct_io: bool = False  # streamed layers bypass the page cache
    max_context: Annotated[int, Field(ge=16)] = 8192
    max_rows: Annotated[int, Field(ge=64, le=4096)] = 512  # of one pass
    kv_tokens: Annotated[int, Field(ge=128)] = 32768  # KV positions, over all sessions

    def budget_bytes(self, layers_bytes: int) -> int:
        """0: no budget."""
        if self.dram_budget.endswith("%"):
            return layers_bytes * int(self.dram_budget[:-1]) // 100
        return int(self.dram_budget)
