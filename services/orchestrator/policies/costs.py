"""Where a session's draft policy has its costs from: measured on this machine, or told by emulated hardware."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from hetspec.drafting.costs import CostCurve, DraftCosts
from hetspec.hardware.curves import CostCurves, Curve
from hetspec.hardware.energy import static_pj
from hetspec.v1 import drafter_pb2
from orchestrator.policies.mode import Objective
from orchestrator.policies.thrift import EnergyCosts


@dataclass(frozen=True, slots=True)
class CostQuery:
    """kv_len: positions that a row attends to. rows: of the target's pass, at most; step_rows: of a draft step."""

    objective: Objective
    kv_len: int
    rows: int
    step_rows: int
    drafter: drafter_pb2.DrafterDescription


@dataclass(frozen=True, slots=True)
class RoundTook:
    """A round that costs decided, as it was. spent_ns: on steps of the draft model, by the costs that decided.
    drafter_ns, sampler_ns: its part of what they computed. beside_ns: neither in a unit nor waiting for others."""

    spent_ns: int
    drafter_ns: int
    sampler_ns: int
    beside_ns: int


class CostSource(Protocol):
    def costs(self, query: CostQuery) -> DraftCosts | None:
        """Up to as many rows as asked for, or fewer. None: they are not known."""

    def energy(self, query: CostQuery) -> EnergyCosts | None:
        """What the asynchronous modes reckon with for little energy, whatever the query's objective."""

    def learn(self, took: RoundTook) -> None:
        """So that the next ones are told better."""


def costs_of_curves(curves: CostCurves, objective: Objective, step_rows: int) -> DraftCosts:
    """Of emulated hardware, on which a round takes what its tasks take. Energy counts what the whole platform draws
    meanwhile; a machine that tells none is taken to draw as much at any time. step_rows: told of, at no cost, where
    there is no draft model."""
    counts_time = objective is Objective.LATENCY or not _tells_energy(curves)

    def costs(ns: Curve, pj: Curve) -> CostCurve:
        if counts_time:
            return CostCurve.padded(ns.points)
        return CostCurve.padded((rows, _drawn(curves, time) + pj(rows)) for rows, time in ns.points)

    if curves.draft_step_ns is None or curves.draft_step_pj is None:
        draft_step = CostCurve.padded([(step_rows, 0)])
    else:
        draft_step = costs(curves.draft_step_ns, curves.draft_step_pj)
    return DraftCosts(0, costs(curves.verify_ns, curves.verify_pj), draft_step)


def energy_of_curves(curves: CostCurves, check_pj: Curve | None, step_rows: int) -> EnergyCosts:
    """check_pj: None of a drafter that cannot check: it is not asked to, whatever that is said to cost."""
    in_turn = costs_of_curves(curves, Objective.ENERGY, step_rows)
    if curves.draft_step_ns is None or not _tells_energy(curves):
        return EnergyCosts(in_turn, 0, in_turn.verify)
    check = in_turn.verify if check_pj is None else CostCurve.padded(check_pj.points)
    return EnergyCosts(in_turn, _drawn(curves, curves.draft_step_ns(1)), check)


def _drawn(curves: CostCurves, time_ns: int) -> int:
    return static_pj(curves.static_uw, 0, time_ns)


def _tells_energy(curves: CostCurves) -> bool:
    return curves.static_uw > 0 or any(pj for _, pj in curves.verify_pj.points)
