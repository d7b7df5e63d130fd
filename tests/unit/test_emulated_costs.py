"""What rounds cost on emulated hardware: as it prices them, as far as it can."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from hetspec.hardware.cost_as import own_cost, parse_cost_as
from hetspec.hardware.datatypes import Datatype
from hetspec.hardware.measured import KvTable, Measured, RowsTable
from hetspec.hardware.platform import Role
from hetspec.hardware.pricing import Pricing
from hetspec.hardware.profile import Described, MeasuredHost, load_profile
from hetspec.hardware.work import DraftWork, ItemRows, VerifyWork
from hetspec.v1 import drafter_pb2
from orchestrator.engine.emulated_costs import EmulatedCosts
from orchestrator.policies.costs import CostQuery
from orchestrator.policies.mode import Objective
from tests.toy_hardware import REAL, REAL_LAYERS

TABLE = KvTable(rows=[1, 9], kv=[1, 1000], ms=[[10.0, 20.0], [30.0, 40.0]])
MEASURED = Measured(
    machine="a machine", threads=1, precision="int8", date="2026-11-30", target="real", draft="real-draft",
    verify=TABLE, draft_read=TABLE, draft_step=TABLE, head=RowsTable(rows=[1], ms=[4.0]), task_ms=0.5,
)  # fmt: skip


def costs() -> EmulatedCosts:
    own = own_cost(REAL, Datatype.INT8)
    profile = MeasuredHost(name="desk", about="a machine", device="host", measured=MEASURED)
    hardware: Any = SimpleNamespace(pricing=Pricing(profile, own.target, own.draft, REAL))
    return EmulatedCosts(hardware)


def query(kv_len: int) -> CostQuery:
    return CostQuery(Objective.LATENCY, kv_len, 9, 8, drafter_pb2.DrafterDescription())


def test_a_round_counts_as_one_at_the_next_multiple_of_64_positions() -> None:
    found = costs().costs(query(100))
    assert found is not None
    at = 10.0 * 127 / 999
    assert found.verify(1) == pytest.approx((10.5 + at) * 1e6, abs=2)
    assert found.draft_step(8) == pytest.approx((27.5 + at) * 1e6, abs=2)


def test_at_the_end_of_what_was_measured_costs_are_not_known() -> None:
    source = costs()
    assert source.costs(query(960)) is not None
    assert source.costs(query(961)) is None


def test_a_machine_that_tells_no_energy_is_taken_to_draw_as_much_at_any_time() -> None:
    source, asked = costs(), replace(query(100), objective=Objective.ENERGY)
    energy = source.energy(asked)
    assert energy is not None
    assert source.costs(asked) == energy.in_turn == source.costs(query(100))
    assert energy.idle == 0  # so that nothing is won by running ahead
    assert energy.check == energy.in_turn.verify


def test_energy_of_described_hardware_is_what_its_tasks_and_its_static_power_draw() -> None:
    told = described(("memories.pim-ranks.capacity", "76 GiB"))
    source = EmulatedCosts(SimpleNamespace(pricing=told))  # type: ignore[arg-type]
    energy = source.energy(query(64))
    assert energy is not None
    step = told.price(DraftWork((ItemRows((64,)),), (1,), 1, takes_features=False))
    check = told.price(VerifyWork((ItemRows((64,) * 3),), (3,) * REAL_LAYERS, role=Role.PRE_VERIFIER))
    static_uw = sum(told.static_uw().values())
    assert energy.idle == static_uw * step.duration_ns // 1000
    assert energy.step == pytest.approx(step.energy_pj)
    assert energy.check(3) == check.energy_pj


def test_where_the_drafter_cannot_check_a_check_is_said_to_take_what_a_pass_does() -> None:
    told = described()
    assert told.pre_verification is not None
    energy = EmulatedCosts(SimpleNamespace(pricing=told)).energy(query(64))  # type: ignore[arg-type]
    assert energy is not None
    assert energy.check == energy.in_turn.verify


def described(*changes: tuple[str, object]) -> Pricing:
    profile = load_profile("npu-lpddr5-pim")
    assert isinstance(profile, Described)
    models = parse_cost_as("llama2-13b:int8+llama2-7b:int8").for_models(REAL)
    return Pricing(profile.with_(dict(changes)), models.target, models.draft, REAL)
