"""A norm and a linear layer on their own, outside the decoder's layers: what the head is, and what reads features."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hetspec.model import forward
from hetspec.model.lanes import LANES
from hetspec.model.operators import FEATURE_NORM, FINAL_NORM, OperatorClocks
from hetspec.model.pack import round_up
from hetspec.model.plan import Plan
from hetspec.model.residency import WeightReader, load_segment
from hetspec.model.team import Team

MAX_ROWS = 16  # rows a native call: bounds the scratch


@dataclass(frozen=True, slots=True)
class Kind:
    """Which one: the segment and its fields. operator: the norm's clock, the linear's is the next."""

    segment: str
    norm: str
    linear: str
    operator: int


HEAD = Kind("head", "final_norm", "head", FINAL_NORM)
FEATURES = Kind("features", "feature_norm", "feature_mix", FEATURE_NORM)


class Projection:
    """Rows of the hidden size to rows of `outputs`. What becomes of a row does not depend on the rows beside it."""

    def __init__(self, reader: WeightReader, kind: Kind, outputs: int, *, threads: int) -> None:
        layout = reader.layout
        self.hidden_size, self.outputs = layout.config.hidden_size, outputs
        self.segment = load_segment(reader, kind.segment)
        fields, base = layout.fields[kind.segment], self.segment.ctypes.data
        scale = fields.get(f"{kind.linear}.scale")
        width = round_up(outputs, LANES)
        self._weights = (
            base + fields[kind.norm].offset,
            base + fields[f"{kind.linear}.w"].offset,
            base + scale.offset if scale else 0,
            width // LANES,
        )
        self._operator = kind.operator
        self.clocks = OperatorClocks(layout, kind.segment)
        self._plan = Plan(layout, threads, MAX_ROWS, width)
        self._team = Team(threads)

    def project(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """float32 [rows, hidden_size], before the norm; returns float32 [rows, outputs]."""
        out = np.empty((len(rows), self.outputs), np.float32)
        for i in range(0, len(rows), MAX_ROWS):
            self._project(rows[i : i + MAX_ROWS], out[i : i + MAX_ROWS])
        return out

    def close(self) -> None:
        self._team.close()

    def _project(self, rows: NDArray[np.float32], out: NDArray[np.float32]) -> None:
        plan = self._plan
        plan.x[: len(rows)] = rows
        plan.start(len(rows))

        # Profiles tell the two by the names of these functions.
        def native_head(thread: int) -> None:
            forward.run_projection(plan.entries, *self._weights, self.clocks.table, self._operator, thread)

        def native_features(thread: int) -> None:
            forward.run_projection(plan.entries, *self._weights, self.clocks.table, self._operator, thread)

        self._team.run(native_head if self.clocks.group == "head" else native_features)
        out[:] = plan.projected[: len(rows), : self.outputs]
