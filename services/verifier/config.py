"""The verifier's settings, read once from HETSPEC_* variables."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from hetspec.rpc.settings import Port, UnitSettings


class VerifierSettings(UnitSettings):
    port: Port = 7002
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
