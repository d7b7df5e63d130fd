"""The operators of a pass, and the clocks that the native code keeps of them.

A pass is a sequence of phases, one an operator, which all threads finish together. Thread 0 reads the clock where one
ends: what it took, then what thread 0 waited for the others. So the times of all operators add up to the native calls'.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from numba import int64
from numba.core.types import Array

from hetspec.jit import part
from hetspec.model import lanes
from hetspec.model.pack import PackLayout
from hetspec.telemetry.profile import OperatorTotal

OPERATORS = (
    "attention norm", "qkv", "rope, kv write", "attention", "quantise", "o", "ffn norm", "gate, up", "activation",
    "down", "residual", "final norm", "head", "feature norm", "feature mix", "wait",
)  # fmt: skip
(
    ATTENTION_NORM, QKV, ROPE, ATTENTION, QUANTISE, OUTPUT, FFN_NORM, GATE_UP, ACTIVATION,
    DOWN, RESIDUAL, FINAL_NORM, HEAD, FEATURE_NORM, FEATURE_MIX, WAIT,
) = range(len(OPERATORS))  # fmt: skip

NS, CALLS, ROWS, _COLUMNS = range(4)
_SINCE = len(OPERATORS)  # the table's last line: when the running phase began
table_type = Array(int64, 2, "C")

_FIELDS: Mapping[int, Sequence[str]] = {
    ATTENTION_NORM: ("attn_norm",),
    QKV: ("qkv.w", "qkv.scale"),
    ROPE: ("qkv_bias", "q_norm", "k_norm"),
    OUTPUT: ("o.w", "o.scale"),
    FFN_NORM: ("ffn_norm",),
    GATE_UP: ("gate_up.w", "gate_up.scale"),
    DOWN: ("down.w", "down.scale"),
    FINAL_NORM: ("final_norm",),
    HEAD: ("head.w", "head.scale"),
    FEATURE_NORM: ("feature_norm",),
    FEATURE_MIX: ("feature_mix.w", "feature_mix.scale"),
}


@part
def start_clock(clocks: Any, thread: int) -> None:
    if thread == 0:
        clocks[_SINCE, NS] = lanes.monotonic_ns()


@part
def note(clocks: Any, thread: int, operator: int, rows: int) -> None:
    """Thread 0: `operator` has run since the last note."""
    if thread == 0:
        now_ns = lanes.monotonic_ns()
        clocks[operator, NS] += now_ns - clocks[_SINCE, NS]
        clocks[operator, CALLS] += 1
        clocks[operator, ROWS] += rows
        clocks[_SINCE, NS] = now_ns


class OperatorClocks:
    """Of one kind of native call, from its making on. `table` is what it adds to; `totals` reads it.

    group: "layers", "head" or "features", the call's name in what it totals up.
    """

    def __init__(self, layout: PackLayout, group: str) -> None:
        self.group = group
        self.table = np.zeros((len(OPERATORS) + 1, _COLUMNS), np.int64)
        self._config = layout.config
        self._fields = {name: field for fields in layout.fields.values() for name, field in fields.items()}
        self._attended = 0  # positions, over rows and layers

    def attended(self, positions: int, layers: int) -> None:
        """Rows went through attention that attended to so many positions together, in each of `layers` layers."""
        self._attended += positions * layers

    def totals(self) -> list[OperatorTotal]:
        """Of the operators that have run, in the order of a pass. May be called while a pass runs."""
        lines = enumerate(self.table[:_SINCE].tolist())
        return [self._total(operator, *line) for operator, line in lines if line[CALLS]]

    def _total(self, operator: int, ns: int, calls: int, rows: int) -> OperatorTotal:
        macs, read_bytes = self._attention() if operator == ATTENTION else self._weights(operator, calls, rows)
        return OperatorTotal(self.group, OPERATORS[operator], ns, calls, rows, macs, read_bytes)

    def _attention(self) -> tuple[int, int]:
        """A position costs every query head a dot product with its key and a share of its value, both float32."""
        return 2 * self._config.q_size * self._attended, 2 * self._config.kv_size * 4 * self._attended

    def _weights(self, operator: int, calls: int, rows: int) -> tuple[int, int]:
        """Every row meets every weight of a linear, the layout's padding among them; a call reads them once."""
        fields = [self._fields[name] for name in _FIELDS.get(operator, ()) if name in self._fields]
        weights = max((prod(field.shape) for field in fields if len(field.shape) > 1), default=0)
        return rows * weights, calls * sum(field.bytes for field in fields)
