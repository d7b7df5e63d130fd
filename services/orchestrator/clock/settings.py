"""Which clock the server goes by."""

from __future__ import annotations

import time
from dataclasses import dataclass

from hetspec.hardware.cost_as import CostAs
from hetspec.hardware.profile import Profile
from orchestrator.clock.hardware import Hardware
from orchestrator.clock.pace import Paced, Unpaced
from orchestrator.clock.world import World


@dataclass(frozen=True, slots=True)
class WorldSettings:
    """pace: emulated seconds a second of the host, at most; None: as fast as it computes."""

    profile: Profile
    cost_as: CostAs | None = None
    pace: float | None = None

    def make(self) -> World:
        pace = Unpaced() if self.pace is None else Paced(self.pace, time.monotonic)
        return World(Hardware(self.profile, self.cost_as), pace)
