"""Final norm and LM head: hidden rows to logits."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hetspec.model import forward
from hetspec.model.lanes import LANES
from hetspec.model.operators import OperatorClocks
from hetspec.model.pack import round_up
from hetspec.model.plan import Plan
from hetspec.model.residency import WeightReader, load_segment
from hetspec.model.team import Team

MAX_ROWS = 16  # rows a native call: bounds the logits' scratch


class Head:
    """`logits` of a row do not depend on the rows beside it."""

    def __init__(self, reader: WeightReader, *, threads: int) -> None:
        layout = reader.layout
        self.vocab_size, self.hidden_size = layout.config.vocab_size, layout.config.hidden_size
        self._segment = load_segment(reader, "head")
        fields, base = layout.fields["head"], self._segment.ctypes.data
        scale = fields.get("head.scale")
        width = round_up(self.vocab_size, LANES)
        self._addresses = (
            base + fields["final_norm"].offset,
            base + fields["head.w"].offset,
            base + scale.offset if scale else 0,
        )
        self._panels = width // LANES
        self.clocks = OperatorClocks(layout, "head")
        self._plan = Plan(layout, threads, MAX_ROWS, width)
        self._team = Team(threads)

    def logits(self, hidden: NDArray[np.float32]) -> NDArray[np.float32]:
        """hidden: float32 [rows, hidden_size], before the final norm; returns float32 [rows, vocab_size]."""
        parts = [self._project(hidden[i : i + MAX_ROWS]) for i in range(0, len(hidden), MAX_ROWS)]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def close(self) -> None:
        self._team.close()

    def _project(self, hidden: NDArray[np.float32]) -> NDArray[np.float32]:
        plan = self._plan
        plan.x[: len(hidden)] = hidden
        plan.start(len(hidden))

        def native_head(thread: int) -> None:
            forward.run_head(plan.entries, *self._addresses, self._panels, self.clocks.table, thread)

        self._team.run(native_head)
        return plan.projected[: len(hidden), : self.vocab_size].copy()
