"""What rounds cost on the machine at hand: the units' own curves, corrected by the passes and rounds that were."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from hetspec.drafting.costs import DraftCosts
from hetspec.v1 import common_pb2, drafter_pb2
from orchestrator.engine.host_costs import HostCosts
from orchestrator.policies.costs import CostQuery, RoundTook
from orchestrator.policies.mode import Objective
from orchestrator.policies.seen_passes import SeenPass

VERIFY = common_pb2.CostCurve(rows=(1, 4, 8), costs=(10_000, 13_000, 25_000))
STEP = common_pb2.CostCurve(rows=(1, 8), costs=(1_000, 2_000))
QUERY = CostQuery(Objective.LATENCY, 100, 8, 8, drafter_pb2.DrafterDescription(step_ns=STEP))


def host_costs(*sessions: int, curve: common_pb2.CostCurve = VERIFY, passes: Sequence[SeenPass] = ()) -> HostCosts:
    """sessions: of each replica of the verifier. passes: that each has run."""
    description = SimpleNamespace(verify_ns=curve)
    replicas = [SimpleNamespace(description=description, load=(n, 0), passes=passes) for n in sessions or (1,)]
    verifiers: Any = SimpleNamespace(replicas=replicas)
    return HostCosts(verifiers)


def told_by(source: HostCosts) -> DraftCosts:
    costs = source.costs(QUERY)
    assert costs is not None
    return costs


def test_before_any_round_costs_are_as_the_units_measured_them() -> None:
    costs = told_by(host_costs())
    assert costs.verify.points == ((1, 10_000), (4, 13_000), (8, 25_000))
    assert costs.draft_step.points == ((1, 1_000), (8, 2_000))


def test_drafts_that_take_longer_than_their_steps_make_steps_dearer() -> None:
    """Rounds tell by the costs that decided on them, which are corrected ones from the second round on."""
    source = host_costs()
    for steps in (2, 4, 1, 3):
        spent = round(steps * told_by(source).draft_step(1))
        source.learn(RoundTook(spent, drafter_ns=1_500 * steps, sampler_ns=1_000, beside_ns=3_000))
    assert told_by(source).round == 4_000
    assert told_by(source).draft_step.points == ((1, 1_500), (8, 3_000))


def test_passes_are_believed_more_than_the_curve_and_looked_at_again_after_some_rounds() -> None:
    passes = deque([SeenPass(1, 1, 12_000), SeenPass(4, 1, 15_600)])
    source = host_costs(passes=passes)
    assert told_by(source).verify.points == ((1, 12_000), (4, 15_600), (8, 30_000))
    for _ in range(8):
        source.learn(RoundTook(0, 0, 0, 0))
    for number in range(16):
        assert told_by(source).verify(1) == (12_000 if number < 8 else 20_000)
        passes.extend([SeenPass(1, 1, 20_000)] * 4)
        source.learn(RoundTook(0, 0, 0, 0))


def test_a_verifier_that_has_come_back_with_another_curve_is_believed_at_once() -> None:
    replica = SimpleNamespace(description=SimpleNamespace(verify_ns=VERIFY), load=(1, 0), passes=())
    verifiers: Any = SimpleNamespace(replicas=[replica])
    source = HostCosts(verifiers)
    assert told_by(source).verify(1) == 10_000
    replica.description = SimpleNamespace(verify_ns=common_pb2.CostCurve(rows=(1, 8), costs=(7_000, 9_000)))
    assert told_by(source).verify.points == ((1, 7_000), (8, 9_000))


def test_rounds_that_something_held_up_are_outvoted_and_old_ones_forgotten() -> None:
    source = host_costs()
    for number in range(40):
        source.learn(RoundTook(0, 0, 0, beside_ns=900_000 if number % 3 == 1 else 2_000))
    assert told_by(source).round == 2_000
    for _ in range(40):
        source.learn(RoundTook(0, 0, 0, beside_ns=7_000))
    assert told_by(source).round == 7_000


def test_rounds_without_the_draft_model_say_nothing_of_its_steps() -> None:
    source = host_costs()
    source.learn(RoundTook(spent_ns=0, drafter_ns=700, sampler_ns=100, beside_ns=100))
    assert told_by(source).draft_step.points == ((1, 1_000), (8, 2_000))


@pytest.mark.parametrize("sessions", [(2,), (4, 0), (3, 1, 2)])
def test_sessions_that_run_together_pay_their_part_of_a_pass_of_them_all(sessions: tuple[int, ...]) -> None:
    """Two of them: 2, 8 and 16 rows; the eight beyond the curve at what the last four cost each."""
    costs = told_by(host_costs(*sessions))
    assert costs.verify.points == ((1, 11_000 // 2), (4, 25_000 // 2), (8, (25_000 + 8 * 3_000) // 2))
    assert costs.draft_step.points == ((1, round(1_000 + 1_000 / 7) // 2), (8, round(round(2_000 + 8 * 1_000 / 7) / 2)))


@pytest.mark.parametrize(("items", "sharing"), [([1, 1, 1, 1], 1), ([1, 3], 2), ([8, 8], 4), (7 * [9] + 8 * [1], 1)])
def test_of_sessions_that_are_there_as_many_pay_as_share_the_latest_passes(items: list[int], sharing: int) -> None:
    passes = [SeenPass(100, count, 1) for count in items]  # of more rows than the curve tells
    assert told_by(host_costs(4, passes=passes)).verify == told_by(host_costs(sharing)).verify


def test_the_time_beside_the_units_is_shared_too() -> None:
    source = host_costs(4)
    source.learn(RoundTook(0, 0, sampler_ns=500, beside_ns=8_000))
    assert (told_by(source).round, told_by(source).verify(1)) == (2_500, 3_250)


def test_a_curve_of_one_point_is_flat_for_any_number_of_sessions() -> None:
    costs = told_by(host_costs(4, curve=common_pb2.CostCurve(rows=(1,), costs=(8_000,))))
    assert costs.verify.points == ((1, 2_000),)


@pytest.mark.parametrize(
    "replicas",
    [[], [SimpleNamespace(description=SimpleNamespace(verify_ns=common_pb2.CostCurve()), load=(0, 0), passes=())]],
)
def test_without_a_curve_there_are_no_costs(replicas: list[object]) -> None:
    verifiers: Any = SimpleNamespace(replicas=replicas)
    source = HostCosts(verifiers)
    source.learn(RoundTook(0, 0, 0, 1_000))
    assert source.costs(QUERY) is None
