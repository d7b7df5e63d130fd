"""What rounds cost on the machine at hand: the units' own curves, corrected by the rounds that were."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from hetspec.v1 import common_pb2, drafter_pb2
from orchestrator.engine.host_costs import HostCosts
from orchestrator.policies.costs import CostQuery, RoundTook
from orchestrator.policies.mode import Objective

VERIFY = common_pb2.CostCurve(rows=(1, 4, 8), costs=(10_000, 13_000, 25_000))
STEP = common_pb2.CostCurve(rows=(1, 8), costs=(1_000, 2_000))
QUERY = CostQuery(Objective.LATENCY, 100, 8, 8, drafter_pb2.DrafterDescription(step_ns=STEP))


def host_costs(*sessions: int, curve: common_pb2.CostCurve = VERIFY) -> HostCosts:
    """sessions: of each replica of the verifier."""
    description = SimpleNamespace(verify_ns=curve)
    replicas = [SimpleNamespace(description=description, load=(count, 0)) for count in sessions or (1,)]
    verifiers: Any = SimpleNamespace(replicas=replicas)
    return HostCosts(verifiers)


def took(nodes: int, verifier_ns: int, beside_ns: int, drafter_ns: int = 0, spent_ns: int = 0) -> RoundTook:
    return RoundTook(nodes, spent_ns, drafter_ns, verifier_ns, beside_ns)


def test_before_any_round_costs_are_as_the_units_measured_them() -> None:
    costs = host_costs().costs(QUERY)
    assert costs is not None
    assert costs.verify.points == ((1, 10_000), (4, 13_000), (8, 25_000))
    assert costs.draft_step.points == ((1, 1_000), (8, 2_000))


def test_a_machine_that_is_slower_by_a_factor_in_rounds_is_found_to_be() -> None:
    """Whatever was drafted. Drafts are told to be slower by the costs that decided on them, which are corrected ones
    from the second round on."""
    source = host_costs()
    for nodes, alone_ns, steps in ((0, 10_000, 2), (3, 13_000, 4), (5, 19_000, 1), (7, 25_000, 3)):
        costs = source.costs(QUERY)
        assert costs is not None
        spent = round(steps * costs.draft_step(1))
        source.learn(took(nodes, alone_ns * 6 // 5, beside_ns=4_000, drafter_ns=1_500 * steps, spent_ns=spent))
    costs = source.costs(QUERY)
    assert costs is not None
    assert costs.round == 4_000
    assert costs.verify.points == ((1, 12_000), (4, 15_600), (8, 30_000))
    assert costs.draft_step.points == ((1, 1_500), (8, 3_000))


def test_rounds_that_something_held_up_are_outvoted_and_old_ones_forgotten() -> None:
    source = host_costs()
    for number in range(40):
        source.learn(took(0, 10_000 * (90 if number % 3 == 0 else 1), beside_ns=900_000 if number % 3 == 1 else 2_000))
    costs = source.costs(QUERY)
    assert costs is not None
    assert (costs.round, costs.plain) == (2_000, 12_000)
    for _ in range(40):
        source.learn(took(0, 20_000, beside_ns=7_000))
    costs = source.costs(QUERY)
    assert costs is not None
    assert (costs.round, costs.plain) == (7_000, 27_000)


def test_rounds_without_the_draft_model_say_nothing_of_its_steps() -> None:
    source = host_costs()
    source.learn(took(1, 11_000, beside_ns=100, drafter_ns=700, spent_ns=0))
    costs = source.costs(QUERY)
    assert costs is not None
    assert costs.draft_step.points == ((1, 1_000), (8, 2_000))


def test_passes_larger_than_the_curve_teach_nothing() -> None:
    source = host_costs()
    before = source.costs(QUERY)
    source.learn(took(8, 1, 1))
    assert source.costs(QUERY) == before


@pytest.mark.parametrize("sessions", [(2,), (4, 0), (3, 1, 2)])
def test_sessions_that_run_together_pay_their_part_of_a_pass_of_them_all(sessions: tuple[int, ...]) -> None:
    """Two of them: 2, 8 and 16 rows; the eight beyond the curve at what the last four cost each."""
    costs = host_costs(*sessions).costs(QUERY)
    assert costs is not None
    assert costs.verify.points == ((1, 11_000 // 2), (4, 25_000 // 2), (8, (25_000 + 8 * 3_000) // 2))
    assert costs.draft_step.points == ((1, round(1_000 + 1_000 / 7) // 2), (8, round(2_000 + 8 * 1_000 / 7) // 2))


def test_the_time_beside_the_passes_is_shared_too() -> None:
    source = host_costs(4)
    source.learn(took(0, 3_250, beside_ns=8_000))
    costs = source.costs(QUERY)
    assert costs is not None
    assert (costs.round, costs.verify(1)) == (2_000, 3_250)


def test_a_curve_of_one_point_is_flat_for_any_number_of_sessions() -> None:
    costs = host_costs(4, curve=common_pb2.CostCurve(rows=(1,), costs=(8_000,))).costs(QUERY)
    assert costs is not None
    assert costs.verify.points == ((1, 2_000),)


@pytest.mark.parametrize(
    "replicas", [[], [SimpleNamespace(description=SimpleNamespace(verify_ns=common_pb2.CostCurve()))]]
)
def test_without_a_curve_there_are_no_costs_and_nothing_is_learned(replicas: list[object]) -> None:
    verifiers: Any = SimpleNamespace(replicas=replicas)
    source = HostCosts(verifiers)
    source.learn(took(0, 10_000, 1_000))
    assert source.costs(QUERY) is None
