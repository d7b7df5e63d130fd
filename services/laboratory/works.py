"""The same work on other hardware: what an answer's tasks would have cost there, one after another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hetspec.hardware.cost import Cost
from hetspec.hardware.energy import static_pj
from hetspec.hardware.platform import Role
from hetspec.hardware.work import WalkWork, Work
from laboratory.outcome import Outcome
from orchestrator.clock.hardware import Hardware
from orchestrator.clock.presence import Key


class NotingHardware(Hardware):
    """Keeps what was asked of it, in order."""

    def note(self) -> None:
        """Anew."""
        self.works: list[Work] = []

    def begin(self, work: Work, start_ns: int) -> Cost:
        self.works.append(work)
        return super().begin(work, start_ns)


@dataclass(frozen=True, slots=True)
class Done:
    """An answer, and the work that it was."""

    outcome: Outcome
    works: Sequence[Work]

    @property
    def is_sequential(self) -> bool:
        """Whether each task began when the one before had ended."""
        return all(component not in ("waited", "overlapped") for _, component in self.outcome.time_ns)


def repriced(done: Done, hardware: Hardware, lazy: bool) -> Outcome:
    """On hardware that has ended what it did before, and has read nothing ahead. lazy: how rows go through the head."""
    start_ns = max(hardware.devices.free_ns(hardware.device_of(role)) for role in Role)
    hardware.devices.rest(start_ns)
    now_ns, first_ns, energy_pj, times = start_ns, 0, 0, Counter[Key]()
    for noted in done.works:
        work = _walk(noted, lazy) if isinstance(noted, WalkWork) else noted
        cost = hardware.begin(work, now_ns)
        now_ns += cost.duration_ns
        energy_pj += cost.energy_pj
        times.update({(cost.device, component): ns for component, ns in cost.time_ns.items() if ns})
        if isinstance(work, WalkWork) and not first_ns:
            first_ns = now_ns - start_ns
    energy_pj += sum(static_pj(power, start_ns, now_ns) for power in hardware.static_uw.values())
    return replace(
        done.outcome, first_ns=first_ns, total_ns=now_ns - start_ns, energy_pj=energy_pj, time_ns=dict(times)
    )


def _walk(work: WalkWork, lazy: bool) -> WalkWork:
    assert work.lazy  # a walk that was noted: only its lazy one tells how far it went
    return work if lazy else WalkWork(work.rows, work.rows, lazy=False)
