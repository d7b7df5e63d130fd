"""What the engine may be told at its making."""

from __future__ import annotations

from dataclasses import dataclass

from hetspec.rpc.tls import RpcTls
from orchestrator.clock.settings import WorldSettings
from orchestrator.timeline.timeline import MAX_TASKS
from orchestrator.units.settings import FleetSettings


@dataclass(frozen=True, slots=True)
class EngineSettings:
    prompt_chunk_tokens: int = 256
    max_rebuilds: int = 3  # of a session in a row, without progress
    fleet: FleetSettings = FleetSettings()
    tls: RpcTls | None = None  # to units and weight store
    world: WorldSettings | None = None  # an emulated one; None: the host's time
    timeline_tasks: int = MAX_TASKS  # of a session, that its timeline holds
