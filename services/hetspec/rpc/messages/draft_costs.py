"""What a draft's tree is sized by, on the wire. One draft's is mostly that of the draft before."""

from __future__ import annotations

from functools import lru_cache

from hetspec.drafting.calibration import CalibrationMap
from hetspec.drafting.costs import CostCurve, DraftCosts
from hetspec.v1 import common_pb2, drafter_pb2


@lru_cache
def costs_to_pb(costs: DraftCosts) -> drafter_pb2.DraftCosts:
    """To be copied, not to be changed."""
    return drafter_pb2.DraftCosts(
        round=costs.round,
        verify=curve_to_pb(costs.verify),
        draft_step=curve_to_pb(costs.draft_step),
        calibration=None if costs.calibration is None else _calibration_to_pb(costs.calibration),
    )


def costs_from_pb(pb: drafter_pb2.DraftCosts) -> DraftCosts:
    """Raises ValueError."""
    return _costs_of(pb.SerializeToString())


@lru_cache
def _costs_of(data: bytes) -> DraftCosts:
    pb = drafter_pb2.DraftCosts.FromString(data)
    calibration = _calibration_from_pb(pb.calibration) if pb.HasField("calibration") else None
    return DraftCosts(pb.round, curve_from_pb(pb.verify), curve_from_pb(pb.draft_step), calibration)


def curve_to_pb(curve: CostCurve) -> common_pb2.CostCurve:
    rows, costs = zip(*curve.points, strict=True)
    return common_pb2.CostCurve(rows=rows, costs=costs)


def curve_from_pb(pb: common_pb2.CostCurve) -> CostCurve:
    """Raises ValueError."""
    if len(pb.rows) != len(pb.costs):
        raise ValueError(f"cost curve: {len(pb.rows)} rows but {len(pb.costs)} costs")
    return CostCurve(tuple(zip(pb.rows, pb.costs, strict=True)))


def _calibration_to_pb(calibration: CalibrationMap) -> drafter_pb2.Calibration:
    sources = [
        drafter_pb2.SourceCalibration(
            source=drafter_pb2.DraftSource.ValueType(source), factors=[factor for row in table for factor in row]
        )
        for source, table in calibration.factors
    ]
    return drafter_pb2.Calibration(edges=calibration.edges, sources=sources)


def _calibration_from_pb(pb: drafter_pb2.Calibration) -> CalibrationMap:
    bins = len(pb.edges) + 1
    tables = []
    for one in pb.sources:
        rows = tuple(tuple(one.factors[start : start + bins]) for start in range(0, len(one.factors), bins))
        tables.append((int(one.source), rows))
    return CalibrationMap(tuple(pb.edges), tuple(tables))
