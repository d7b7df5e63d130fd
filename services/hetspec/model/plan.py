"""Fills the int64 plan that the native passes of `forward` read."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetspec.model import forward as f
from hetspec.model.config import ModelConfig
from hetspec.model.lanes import LANES
from hetspec.model.pack import FFN_MULTIPLE, GROUP, PackLayout, round_up
from hetspec.model.rope import rope_tables

_FIELDS = {
    f.ATTN_NORM: "attn_norm", f.Q_NORM: "q_norm", f.K_NORM: "k_norm", f.QKV_BIAS: "qkv_bias", f.FFN_NORM: "ffn_norm",
    f.QKV_W: "qkv.w", f.QKV_SCALE: "qkv.scale", f.O_W: "o.w", f.O_SCALE: "o.scale", f.GATE_UP_W: "gate_up.w",
    f.GATE_UP_SCALE: "gate_up.scale", f.DOWN_W: "down.w", f.DOWN_SCALE: "down.scale",
}  # fmt: skip


def check_runnable(config: ModelConfig) -> None:
    """Raises ValueError for a shape that the kernels cannot take."""
    for name in ("hidden_size", "head_dim"):
        if getattr(config, name) % LANES:
            raise ValueError(f"{name} = {getattr(config, name)}, must be a multiple of {LANES}")


class Plan:
    """The plan and the arrays it points at: scratch for `max_rows` rows and `threads` threads.

    x: float32 [max_rows, hidden], the residual rows. projected: float32 [max_rows, outputs].
    """

    def __init__(self, layout: PackLayout, threads: int, max_rows: int, outputs: int) -> None:
        config = layout.config
        check_runnable(config)
        ffn, q_size = round_up(config.ffn_size, FFN_MULTIPLE), config.q_size
        stride = round_up(max(config.hidden_size, q_size, ffn), GROUP)
        self.entries = np.full(f.PLAN_SIZE, -1, np.int64)
        self._kept: list[NDArray[Any]] = []
        shapes = {
            f.HIDDEN: config.hidden_size, f.HEADS: config.n_heads, f.KV_HEADS: config.n_kv_heads,
            f.HEAD_DIM: config.head_dim, f.FFN: ffn, f.QKV: q_size + 2 * config.kv_size,
            f.INT8: int(layout.precision == "int8"), f.INPUT_STRIDE: stride, f.THREADS: threads,
        }  # fmt: skip
        for entry, value in shapes.items():
            self.entries[entry] = value
        self.x = self.array(f.X, (max_rows, config.hidden_size))
        self.projected = self.array(f.PROJECTED, (max_rows, outputs))
        self.array(f.NORMED, (max_rows, config.hidden_size))
        self.array(f.INPUT, (max_rows, stride), np.int16)
        self.array(f.INPUT_SCALE, (max_rows,))
        self.array(f.EPS, (1,))[0] = config.rms_eps
        self.barrier = self.array(f.BARRIER, (1,), np.int64)

    def add_layers(self, layout: PackLayout, max_rows: int, max_context: int) -> None:
        """What decoder layers need besides: their scratch, rope tables, and where a layer's fields lie."""
        config = layout.config
        entries = self.entries
        threads, group = int(entries[f.THREADS]), config.n_heads // config.n_kv_heads
        score_stride = round_up(max_context, LANES)
        entries[f.SCORE_STRIDE] = score_stride
        self.array(f.QKV_OUT, (max_rows, int(entries[f.QKV])))
        self.array(f.ATTENDED, (max_rows, config.q_size))
        self.array(f.GATE_UP_OUT, (max_rows, 2 * int(entries[f.FFN])))
        self.array(f.SCORES, (threads, group, score_stride))
        self.cos, self.sin = rope_tables(config, max_context)
        entries[f.COS], entries[f.SIN] = self.cos.ctypes.data, self.sin.ctypes.data
        for entry, name in _FIELDS.items():
            field = layout.fields["layer"].get(name)
            if field is not None:
                entries[entry] = field.offset

    def array(self, entry: int, shape: tuple[int, ...], dtype: Any = np.float32) -> NDArray[Any]:
        array = np.zeros(shape, dtype)
        self._kept.append(array)
        self.entries[entry] = array.ctypes.data
        return array

    def start(self, rows: int) -> None:
        """Readies the barrier for a pass over `rows` rows."""
        self.entries[f.ROWS] = rows
        self.barrier[0] = 0
