"""What rounds cost on emulated hardware: as it prices them, as far as it can."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from hetspec.hardware.cost_as import own_cost
from hetspec.hardware.datatypes import Datatype
from hetspec.hardware.measured import KvTable, Measured, RowsTable
from hetspec.hardware.pricing import Pricing
from hetspec.hardware.profile import MeasuredHost
from hetspec.v1 import drafter_pb2
from orchestrator.engine.emulated_costs import EmulatedCosts
from orchestrator.policies.costs import CostQuery
from orchestrator.policies.mode import Objective
from tests.toy_hardware import REAL

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
