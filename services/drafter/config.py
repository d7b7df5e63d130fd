"""The drafter's settings, read once from HETSPEC_* variables."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from hetspec.rpc.settings import Port, UnitSettings


class DrafterSettings(UnitSettings):
    port: Port = 7003
    max_context: Annotated[int, Field(ge=16)] = 8192
    kv_tokens: Annotated[int, Field(ge=128)] = 32768  # KV positions of each of its models, over all sessions
    holds_target: bool = False  # all layers of the target too, to check drafts with before the verifier does
