"""The hardware of an emulated world: its devices, and what tasks cost on them."""

from __future__ import annotations

from collections.abc import Mapping

from hetspec.hardware.cost import Cost
from hetspec.hardware.cost_as import CostAs, RealShapes, own_cost
from hetspec.hardware.datatypes import Datatype
from hetspec.hardware.flash import ReadAhead
from hetspec.hardware.platform import Role
from hetspec.hardware.pricing import Pricing
from hetspec.hardware.profile import FLASH, Profile
from hetspec.hardware.work import Work
from orchestrator.clock.devices import Devices

_OWN = Datatype.INT8  # of the models that run, where they are priced as themselves


class Hardware:
    """Nothing is asked of it before it is told what `run`s."""

    def __init__(self, profile: Profile, cost_as: CostAs | None) -> None:
        """cost_as: what the models are priced as; None: as what they are. pre_verifies: whether the drafter's device
        can compute the target, too, once that is known."""
        self.profile = profile
        self._cost_as = cost_as
        self.static_uw: Mapping[str, int] = {}
        self.devices = Devices((), None)
        self.pre_verifies = False

    def run(self, real: RealShapes) -> None:
        """These models run. Raises ValueError where they cannot, or not as what they are to be priced as."""
        self.cost_as = (self._cost_as or own_cost(real, _OWN)).for_models(real)
        self.pricing = Pricing(self.profile, self.cost_as.target, self.cost_as.draft, real)
        self.static_uw = self.pricing.static_uw()
        self.pre_verifies = self.pricing.pre_verification is None
        devices = {self.device_of(role) for role in Role}
        self.devices = Devices(sorted(devices | ({FLASH} & self.static_uw.keys())), FLASH)

    def device_of(self, role: Role) -> str:
        return self.pricing.device_of(role)

    def context(self, of_model: int) -> int:
        """Tokens of a session whose every task can be priced, at most those of the model's context."""
        longest = self.pricing.longest_kv
        return of_model if longest is None else min(of_model, longest)

    def begin(self, work: Work, start_ns: int) -> Cost:
        """What a task that begins then costs; its device is held for so long."""
        ahead = ReadAhead(self.devices.flash_idle_ns(start_ns))
        cost = self.pricing.price(work, ahead, self.devices.beside(start_ns))
        self.devices.hold(start_ns, cost, self.pricing.share(cost))
        return cost

    def cut(self, cost: Cost, start_ns: int, now_ns: int) -> Cost:
        """What a task that `begin` gave this cost comes to, if it is told to stop now; the same where its device cannot
        be interrupted."""
        if not self.pricing.is_preemptible(cost.device):
            return cost
        shorter = cost.cut(now_ns - start_ns)
        self.devices.cut(start_ns, cost, shorter)
        return shorter
