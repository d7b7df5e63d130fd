"""A machine measured by the system that runs on it."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from calibration.calm import Waiting, check_alike, check_rising, check_waiting
from calibration.layer_reads import layer_reads_ns
from calibration.machine import describe_machine
from calibration.plan import Plan
from calibration.rig import Addresses, Rig, open_rig, real_shapes
from calibration.sample import Sample
from calibration.tables import head_table, kv_table, read_points, step_points, verify_points
from calibration.task_time import task_ns
from hetspec.hardware.measured import KvTable, Measured
from hetspec.hardware.profile import MeasuredHost
from hetspec.rpc.tls import RpcTls
from hetspec_client.client import Client

DEVICE = "host"
_NS_PER_MS = 10**6
Advance = Callable[[float], None]


@dataclass(frozen=True, slots=True)
class Calibration:
    """max_context: tokens that a row attends to, at most. enough_s: of rounds; what is left of the plan is dropped."""

    addresses: Addresses
    client: Client
    max_context: int
    enough_s: float
    tls: RpcTls | None = None

    def run(self, name: str, advance: Advance) -> MeasuredHost:
        """advance: told of the share that is done since. Raises CalibrationError, HetspecError."""
        with open_rig(self.addresses, self.tls) as rig:
            measured = self._measure(rig, advance)
        about = f"This machine as `hetspec calibrate` measured it on {measured.date}: {measured.machine}."
        return MeasuredHost(name=name, about=about, device=DEVICE, measured=measured)

    def _measure(self, rig: Rig, advance: Advance) -> Measured:
        store, identity = self.addresses.weight_store, rig.description.identity
        real, beside_ns = real_shapes(store, self.tls), task_ns(self.client)
        waiting = Waiting()
        samples = self._samples(rig, advance)
        check_waiting(waiting.share())
        check_alike(samples)
        verify, head = kv_table(verify_points(samples)), head_table(samples)
        read, step = _draft_tables(samples) if rig.has_draft else (None, None)
        check_rising({"a pass": verify, "a draft read": read, "a draft step": step, "a walk": head})
        reads = layer_reads_ns(store, identity.precision, range(real.target.n_layers), self.tls)
        return Measured(
            machine=describe_machine(),
            date=str(datetime.date.today()),
            precision=identity.precision,
            threads=identity.threads,
            target=real.target.name,
            draft=real.draft.name if real.draft else None,
            verify=verify,
            draft_read=read,
            draft_step=step,
            head=head,
            layer_read_ms=_ms(median(reads)),
            task_ms=_ms(beside_ns),
        )

    def _samples(self, rig: Rig, advance: Advance) -> list[Sample]:
        plan = Plan(rig.deepest(self.max_context), rig.description.max_rows)
        samples, rounds, start_s = rig.read(plan), plan.rounds(), time.monotonic()
        least = plan.least_rounds
        for place, one in enumerate(rounds):
            if place >= least and time.monotonic() - start_s > self.enough_s:
                advance((len(rounds) - place) / len(rounds))
                break
            samples += rig.round(one)
            advance(1 / len(rounds))
        return samples


def _ms(ns: float) -> float:
    return round(ns / _NS_PER_MS, 4)


def _draft_tables(samples: Sequence[Sample]) -> tuple[KvTable, KvTable]:
    """Of the steps that read, and of those that follow."""
    read = kv_table(read_points(samples))
    return read, kv_table(step_points(samples, read))
