"""What queues of an emulated world have in common that stand for a role."""

from __future__ import annotations

from hetspec.hardware.platform import Role
from orchestrator.clock.world import World

_ROLES = list(Role)


class RoleQueue:
    _world: World
    _role: Role

    @property
    def device(self) -> str:
        return self._world.hardware.device_of(self._role)

    @property
    def place(self) -> int:
        return _ROLES.index(self._role)
